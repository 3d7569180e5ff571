// Mamba-2: layers of one mixer each. The model has no attention, so its state does not grow with the context.
#include "models/hybrid.h"
#include "models/registry.h"

namespace millrace {
namespace {

DecoderConfig read_config(const WeightSource& source) {
  const Config& keys = source.config();
  DecoderConfig c;
  c.architecture = keys.architecture();
  const auto count = [&](ConfigKey key, int64_t most, int64_t usual) {
    if (is_gguf(source)) return keys.integer(key, {1, most});
    return keys.optional_integer(key, {1, most}).value_or(usual);
  };
  c.layers = count({"num_hidden_layers", "block_count"}, 1000, 64);
  c.hidden = count({"hidden_size", "embedding_length"}, 1 << 20, 4096);
  c.context = int64_t{1} << 20;  // the recurrence has no limit; GGUF files name this one
  const auto epsilon = keys.optional_number({"layer_norm_epsilon", "attention.layer_norm_rms_epsilon"}).value_or(1e-5);
  if (!(epsilon >= 0))
    keys.fail_key({"layer_norm_epsilon", "attention.layer_norm_rms_epsilon"}, "must not be negative");
  c.norm_epsilon = static_cast<float>(epsilon);
  const auto* table = source.find("token_embd.weight");
  c.vocab = table != nullptr && table->shape.size() == 2
                ? table->shape[0]
                : keys.optional_integer({.hf = "vocab_size"}, {1, 1 << 24}).value_or(32768);
  return c;
}

}  // namespace

std::unique_ptr<Model> make_mamba2(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  const DecoderConfig c = read_config(source);
  if (read_activation(source, "hidden_act", Activation::Silu) != Activation::Silu)
    refuse(source, "Mamba-2 with an activation other than silu");
  const int64_t expand = keys.optional_integer({.hf = "expand"}, {1, 64}).value_or(2);
  Mamba2Shape shape = read_mamba2_shape(source,
                                        {.heads = "num_heads",
                                         .head_dim = "head_dim",
                                         .groups = "n_groups",
                                         .state = "state_size",
                                         .taps = "conv_kernel"},
                                        expand * c.hidden);
  read_step_limit(source, shape);
  auto model = std::make_unique<Hybrid>(c);
  model->rotates = false;
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "backbone.layers.{}."});
    HybridLayer& layer = model->layers.emplace_back();
    layer.norm = at.vector({"attn_norm.weight", "norm.weight"}, c.hidden);
    layer.mamba = load_mamba2(at, "mixer.", shape, c.hidden, c.norm_epsilon, state);
  }
  TensorName table{"token_embd.weight", "backbone.embeddings.weight"};
  if (!w.has(table)) table.hf = "backbone.embedding.weight";  // of the original checkpoints
  model->load_ends(w, table, {"output_norm.weight", "backbone.norm_f.weight"});
  return model;
}

}  // namespace millrace
