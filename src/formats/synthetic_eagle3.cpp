// Synthetic EAGLE-3 heads for a shape, as published for Llama 3.1 8B: one layer that reads two hidden states, a matrix
// that reduces three hidden states of the target to one, and logits over 32000 of the target's tokens.
#include <fmt/format.h>

#include <algorithm>

#include "formats/synthetic_blueprint.h"

namespace millrace {
namespace {

using Kind = SyntheticTensor::Kind;

constexpr int64_t kMostDraftTokens = 32000;

int64_t draft_tokens(const SyntheticShape& s) { return std::min(s.vocab, kMostDraftTokens); }

std::string eagle3_config(const SyntheticShape& s) {
  return fmt::format(R"({{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "vocab_size": {},
    "draft_vocab_size": {}, "hidden_size": {}, "intermediate_size": {}, "num_hidden_layers": 1,
    "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, "max_position_embeddings": {},
    "rope_theta": {}, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false}})",
                     s.vocab, draft_tokens(s), s.hidden, s.feed_forward, s.heads, s.kv_heads, s.head_dim, s.context,
                     s.rope_base);
}

std::vector<SyntheticTensor> eagle3_tensors(const SyntheticShape& s) {
  const std::string layer = "midlayer.";
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  std::vector<SyntheticTensor> out;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols, const char* role) {
    out.push_back({name + ".weight", {rows, cols}, Kind::Matrix, role});
  };
  matrix("fc", s.hidden, 3 * s.hidden, "blk.0.attn_output.weight");
  for (const char* norm : {"input_layernorm", "hidden_norm", "post_attention_layernorm"})
    out.push_back({layer + norm + ".weight", {s.hidden}, Kind::Norm});
  matrix(layer + "self_attn.q_proj", q, 2 * s.hidden, "blk.0.attn_q.weight");
  matrix(layer + "self_attn.k_proj", kv, 2 * s.hidden, "blk.0.attn_k.weight");
  matrix(layer + "self_attn.v_proj", kv, 2 * s.hidden, "blk.0.attn_v.weight");
  matrix(layer + "self_attn.o_proj", s.hidden, q, "blk.0.attn_output.weight");
  matrix(layer + "mlp.gate_proj", s.feed_forward, s.hidden, "blk.0.ffn_gate.weight");
  matrix(layer + "mlp.up_proj", s.feed_forward, s.hidden, "blk.0.ffn_up.weight");
  matrix(layer + "mlp.down_proj", s.hidden, s.feed_forward, "blk.0.ffn_down.weight");
  out.push_back({"norm.weight", {s.hidden}, Kind::Norm});
  matrix("lm_head", draft_tokens(s), s.hidden, "output.weight");
  out.push_back({"d2t", {draft_tokens(s)}, Kind::Shifts});
  return out;
}

}  // namespace

SyntheticBlueprint draw_eagle3_blueprint(const SyntheticShape& shape) {
  return {{}, eagle3_config(shape), eagle3_tensors(shape)};
}

}  // namespace millrace
