// Synthetic OPT, in the convention of Hugging Face folders: GGUF does not know it.
#include <fmt/format.h>

#include "formats/synthetic_blueprint.h"

namespace millrace {
namespace {

using Kind = SyntheticTensor::Kind;

std::string opt_config(const SyntheticShape& s) {
  return fmt::format(R"({{"architectures": ["OPTForCausalLM"], "model_type": "opt", "vocab_size": {},
    "hidden_size": {}, "word_embed_proj_dim": {}, "ffn_dim": {}, "num_hidden_layers": {}, "num_attention_heads": {},
    "max_position_embeddings": {}, "do_layer_norm_before": true, "activation_function": "relu", "enable_bias": true,
    "layer_norm_elementwise_affine": true, "tie_word_embeddings": true}})",
                     s.vocab, s.hidden, s.hidden, s.feed_forward, s.layers, s.heads, s.context);
}

std::vector<SyntheticTensor> opt_tensors(const SyntheticShape& s) {
  std::vector<SyntheticTensor> out;
  const auto linear = [&](const std::string& name, int64_t rows, int64_t cols) {
    out.push_back({name + ".weight", {rows, cols}});
    out.push_back({name + ".bias", {rows}, Kind::Small});
  };
  const auto norm = [&](const std::string& name) {
    out.push_back({name + ".weight", {s.hidden}, Kind::Norm});
    out.push_back({name + ".bias", {s.hidden}, Kind::Small});
  };
  constexpr int64_t kPositionOffset = 2;  // the first two rows of OPT's position table are unused
  out.push_back({"model.decoder.embed_tokens.weight", {s.vocab, s.hidden}, Kind::Matrix, "token_embd.weight"});
  out.push_back({"model.decoder.embed_positions.weight", {s.context + kPositionOffset, s.hidden}, Kind::Small});
  norm("model.decoder.final_layer_norm");
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string layer = fmt::format("model.decoder.layers.{}.", i);
    norm(layer + "self_attn_layer_norm");
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      linear(layer + "self_attn." + name, s.hidden, s.hidden);
    norm(layer + "final_layer_norm");
    linear(layer + "fc1", s.feed_forward, s.hidden);
    linear(layer + "fc2", s.hidden, s.feed_forward);
  }
  return out;
}

}  // namespace

SyntheticBlueprint draw_opt_blueprint(const SyntheticShape& shape) {
  return {{}, opt_config(shape), opt_tensors(shape)};
}

}  // namespace millrace
