// Gemma 4 as a GGUF file.
#include <algorithm>

#include "convert/architecture_functions.h"
#include "convert/key_checks.h"
#include "models/gemma4_layers.h"

namespace millrace {
namespace {

// One number if all layers have the same, else one for each.
void add_by_layer(ArchitectureKeys& k, std::string_view key, const std::vector<int32_t>& values) {
  const bool same = std::all_of(values.begin(), values.end(), [&](int32_t value) { return value == values.front(); });
  if (same) return k.count(key, values.front());
  k.counts(key, values);
}

}  // namespace

void gemma4_keys(ArchitectureKeys& k) {
  const DecoderConfig& c = k.model.config;
  require_activation(k, Activation::GeluTanh, "hidden_activation");
  const auto layers = read_gemma4_layers(k.model.source, c);
  std::vector<int32_t> widths, kv_heads;
  std::vector<bool> windowed;
  int64_t shared = 0;
  int local_dim = c.head_dim;
  for (size_t i = 0; i < layers.size(); ++i) {
    widths.push_back(static_cast<int32_t>(layers[i].feed_forward));
    kv_heads.push_back(layers[i].kv_heads);
    windowed.push_back(layers[i].window > 0);
    shared += layers[i].keys_of != static_cast<int64_t>(i);
    if (layers[i].window > 0) local_dim = layers[i].head_dim;
  }
  const int global_dim = layers.back().head_dim;
  add_layer_sizes(k);
  k.count("context_length", c.context);
  k.count("attention.head_count", c.heads);
  add_by_layer(k, "feed_forward_length", widths);
  add_by_layer(k, "attention.head_count_kv", kv_heads);
  k.number("rope.freq_base", k.number_of("rope_parameters.full_attention.rope_theta", 1e6));
  add_local_rope(k, 1e4);
  k.count("attention.sliding_window", c.window);
  k.flags("attention.sliding_window_pattern", windowed);
  k.count("attention.shared_kv_layers", shared);
  k.count("embedding_length_per_layer_input", k.model.rows_of("blk.0.inp_gate.weight"));
  k.count("attention.key_length", global_dim);
  k.count("attention.value_length", global_dim);
  k.count("attention.key_length_swa", local_dim);
  k.count("attention.value_length_swa", local_dim);
  k.count("rope.dimension_count", global_dim);
  k.count("rope.dimension_count_swa", local_dim);
  if (const double cap = k.number_of("final_logit_softcapping", 0); cap != 0) k.number("final_logit_softcapping", cap);
}

// Gate and up of an expert follow each other in one tensor.
void gemma4_tensor(const ConvertedModel& model, FileTensor tensor, std::vector<FileTensor>& out) {
  constexpr std::string_view kGate = "ffn_gate_exps.weight", kUp = "ffn_up_exps.weight";
  if (tensor.name.ends_with(kUp)) return;
  if (!tensor.name.ends_with(kGate)) return out.push_back(std::move(tensor));
  const std::string layer = tensor.name.substr(0, tensor.name.size() - kGate.size());
  const std::vector<WeightView> gates = tensor.sources, ups = model.find(layer + std::string(kUp))->pieces;
  tensor.name = layer + "ffn_gate_up_exps.weight";
  tensor.shape[1] *= 2;
  tensor.sources.clear();
  for (size_t i = 0; i < gates.size(); ++i) tensor.sources.insert(tensor.sources.end(), {gates[i], ups[i]});
  tensor.parts.front().pieces = tensor.sources;
  out.push_back(std::move(tensor));
}

}  // namespace millrace
