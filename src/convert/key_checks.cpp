#include "convert/key_checks.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {

void require_activation(ArchitectureKeys& k, Activation expected, std::string_view key) {
  const bool same = read_activation(k.model.source, key, expected) == expected;
  k.require(same, fmt::format("the activation of this config ({})", key));
}

void refuse_window(ArchitectureKeys& k) {
  const DecoderConfig& c = k.model.config;
  k.require(c.window == 0 || c.window >= c.context,
            fmt::format("a sliding window ({} of {} positions)", c.window, c.context));
}

namespace {

std::vector<bool> windowed_layers(ArchitectureKeys& k, int64_t pattern) {
  const auto windows = layer_windows(k.model.source, k.model.config, pattern);
  std::vector<bool> slides;
  for (const int window : windows) slides.push_back(window > 0);
  return slides;
}

}  // namespace

void add_pattern(ArchitectureKeys& k, int64_t pattern, int64_t usual) {
  const std::vector<bool> slides = windowed_layers(k, usual);
  bool as_usual = true;
  for (size_t i = 0; i < slides.size(); ++i)
    as_usual = as_usual && slides[i] == ((static_cast<int64_t>(i) + 1) % pattern != 0);
  k.require(as_usual || std::find(slides.begin(), slides.end(), true) != slides.end(), "layers without any window");
  k.count("attention.sliding_window", k.model.config.window);
  if (!as_usual) k.flags("attention.sliding_window_pattern", slides);
}

bool add_listed_windows(ArchitectureKeys& k, int64_t pattern) {
  const std::vector<bool> slides = windowed_layers(k, pattern);
  if (std::find(slides.begin(), slides.end(), true) == slides.end()) return false;
  k.count("attention.sliding_window", k.model.config.window);
  k.flags("attention.sliding_window_pattern", slides);
  return true;
}

void add_local_rope(ArchitectureKeys& k, double usual_base) {
  const std::string of = "rope_parameters.sliding_attention.";
  const auto type = k.model.keys().optional_string({.hf = of + "rope_type"}).value_or("default");
  k.require(type == "default", "rope scaling '" + type + "' of layers with a window");
  k.number("rope.freq_base_swa", k.number_of(of + "rope_theta", usual_base));
}

namespace {

bool has_experts(const ArchitectureKeys& k, int64_t layer) {
  return k.model.has(fmt::format("blk.{}.ffn_gate_exps.weight", layer));
}

}  // namespace

void require_experts(ArchitectureKeys& k, int64_t leading, int64_t step) {
  for (int64_t i = 0; i < k.model.config.layers; ++i)
    k.require(has_experts(k, i) == (i >= leading && (i + 1) % step == 0), "such a pattern of dense layers");
}

int64_t leading_dense(const ArchitectureKeys& k) {
  int64_t layer = 0;
  while (layer < k.model.config.layers && !has_experts(k, layer)) ++layer;
  return layer;
}

void add_shared_width(ArchitectureKeys& k) {
  for (const DeclaredTensor& tensor : k.model.tensors) {
    if (tensor.gguf.ends_with(".ffn_up_shexp.weight"))
      return k.count("expert_shared_feed_forward_length", tensor.shape[0]);
  }
}

}  // namespace millrace
