#include "models/gemma4_layers.h"

#include <fmt/format.h>

#include "models/blocks.h"

namespace millrace {
namespace {

constexpr int64_t kMostHeadDim = 1 << 12;

// The value of layer i of a GGUF key that holds one number or one per layer.
std::optional<int64_t> by_layer(const Config& keys, std::string_view name, int64_t i, int64_t most) {
  const ConfigKey key{.gguf = name};
  if (!keys.has_list(key)) return keys.optional_integer(key, {1, most});
  const auto list = keys.array<int64_t>(key);
  if (i >= std::ssize(list) || list[static_cast<size_t>(i)] < 1 || list[static_cast<size_t>(i)] > most)
    keys.fail_key(key, "must have a plausible number for every layer");
  return list[static_cast<size_t>(i)];
}

// Newer Hugging Face configs list what differs by layer, older ones have a second key for layers without window.
Gemma4Layer hf_shape(const Config& keys, const DecoderConfig& c, int64_t i, bool full) {
  const auto of_layer = [&](const char* name, const char* global, int64_t most) -> std::optional<int64_t> {
    const std::string path = fmt::format("per_layer_config.{}.{}", i, name);
    if (keys.has({.hf = "per_layer_config"})) return keys.optional_integer({.hf = path}, {1, most});
    return full && *global ? keys.optional_integer({.hf = global}, {1, most}) : std::nullopt;
  };
  const bool listed = keys.has({.hf = "per_layer_config"});
  const bool keys_are_values = keys.optional_boolean({.hf = "attention_k_eq_v"}).value_or(false);
  Gemma4Layer shape;
  shape.head_dim = static_cast<int>(
      of_layer("head_dim", "global_head_dim", kMostHeadDim).value_or(full && !listed ? 512 : c.head_dim));
  shape.kv_heads =
      static_cast<int>(of_layer("num_key_value_heads", keys_are_values ? "num_global_key_value_heads" : "", c.heads)
                           .value_or(c.kv_heads));
  shape.feed_forward = c.feed_forward;
  return shape;
}

Gemma4Layer gguf_shape(const Config& keys, const DecoderConfig& c, int64_t i, bool full) {
  Gemma4Layer shape;
  const auto windowed = keys.optional_integer({.gguf = "attention.key_length_swa"}, {1, kMostHeadDim});
  shape.head_dim = full ? c.head_dim : static_cast<int>(windowed.value_or(c.head_dim));
  shape.kv_heads = static_cast<int>(by_layer(keys, "attention.head_count_kv", i, c.heads).value_or(c.kv_heads));
  shape.feed_forward = by_layer(keys, "feed_forward_length", i, 1 << 22).value_or(c.feed_forward);
  return shape;
}

}  // namespace

std::vector<Gemma4Layer> read_gemma4_layers(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  const ConfigKey shared_key{"num_kv_shared_layers", "attention.shared_kv_layers"};
  const int64_t own = c.layers - keys.optional_integer(shared_key, {0, c.layers - 1}).value_or(0);
  const bool double_wide = keys.optional_boolean({.hf = "use_double_wide_mlp"}).value_or(false);
  auto windows = layer_windows(source, c, 6);
  windows.back() = 0;  // as transformers does
  std::vector<Gemma4Layer> shapes;
  for (int64_t i = 0; i < c.layers; ++i) {
    const int window = windows[static_cast<size_t>(i)];
    Gemma4Layer& shape =
        shapes.emplace_back(is_gguf(source) ? gguf_shape(keys, c, i, window == 0) : hf_shape(keys, c, i, window == 0));
    shape.window = window;
    shape.keys_of = i;
    if (i >= own) {
      if (double_wide) shape.feed_forward *= 2;
      for (shape.keys_of = own - 1; shape.keys_of >= 0; --shape.keys_of) {
        if (windows[static_cast<size_t>(shape.keys_of)] == window) break;
      }
      if (shape.keys_of < 0) keys.fail_key(shared_key, "leaves no layer that stores keys for the others");
      const Gemma4Layer& storing = shapes[static_cast<size_t>(shape.keys_of)];
      if (storing.head_dim != shape.head_dim) refuse(source, "a layer that shares keys of another head size");
      shape.kv_heads = storing.kv_heads;
    }
    if (c.heads % shape.kv_heads != 0) refuse(source, "KV heads that do not divide the heads");
    for (const Gemma4Layer& other : shapes) {
      if (other.window == window && other.head_dim != shape.head_dim)
        refuse(source, "several head sizes among layers with one kind of attention");
    }
  }
  return shapes;
}

RopeFrequencies read_gemma4_rope(const WeightSource& source, DecoderConfig c, int head_dim) {
  c.head_dim = c.rotary_dim = head_dim;
  if (is_gguf(source)) return read_rope_frequencies(source, c);  // divisors in rope_freqs.weight
  const Config& keys = source.config();
  const std::string section = "rope_parameters.full_attention.";
  const auto number = [&](const char* name, double usual) {
    return keys.optional_number({.hf = section + name}).value_or(usual);
  };
  const bool given = keys.has({.hf = "rope_parameters.full_attention"});
  const std::string type =
      keys.optional_string({.hf = section + "rope_type"}).value_or(given ? "default" : "proportional");
  const double theta = number("rope_theta", 1e6), factor = number("factor", 1);
  const double part = type == "proportional" ? number("partial_rotary_factor", given ? 1 : 0.25) : 1;
  if (type != "proportional" && type != "default") refuse(source, "rope type '" + type + "' in Gemma 4");
  if (!(theta > 0) || !(factor > 0) || !(part >= 0 && part <= 1))
    keys.fail_key({.hf = "rope_parameters.full_attention"}, "has an implausible number");
  RopeFrequencies rope = plain_rope_frequencies(theta, head_dim);
  const auto rotating = static_cast<size_t>(part * head_dim / 2);
  for (size_t i = 0; i < rope.inverse.size(); ++i)
    rope.inverse[i] = i < rotating ? static_cast<float>(rope.inverse[i] / factor) : 0;
  return rope;
}

RopeFrequencies read_gemma4_local_rope(const WeightSource& source, int head_dim) {
  const Config& keys = source.config();
  const auto type = keys.optional_string({.hf = "rope_parameters.sliding_attention.rope_type"});
  if (type && *type != "default") refuse(source, "rope type '" + *type + "' on windowed layers");
  const double theta =
      keys.optional_number({"rope_parameters.sliding_attention.rope_theta", "rope.freq_base_swa"}).value_or(1e4);
  if (!(theta > 0))
    keys.fail_key({"rope_parameters.sliding_attention.rope_theta", "rope.freq_base_swa"}, "must be positive");
  const auto rotary = keys.optional_integer({.gguf = "rope.dimension_count_swa"}, {2, head_dim}).value_or(head_dim);
  return plain_rope_frequencies(theta, static_cast<int>(rotary));
}

}  // namespace millrace
