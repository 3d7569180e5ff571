// Weights and forward steps that many decoders share.
#pragma once

#include "models/pass.h"
#include "models/weights.h"

namespace millrace {

struct AttentionWeights {
  const Linear* qkv = nullptr;  // [q_dim + 2 kv_dim, hidden]
  const Linear* out = nullptr;  // [hidden, q_dim]
  // [head_dim]: norms of each head; [q_dim], [kv_dim]: norms of all heads at once; null: no norms
  const Vector *q_norm = nullptr, *k_norm = nullptr;
  bool norms_after_rope = false;
  bool gated = false;  // qkv has q_dim more rows behind q: attention is multiplied by sigmoid of them
  float clamp = 0;     // c: q, k and v are clamped to [-c, c] after their norms; 0: not
};
// Throws if a folder lacks the biases of q, k and v that its config has.
void require_attention_biases(const Weights::Layer& at);
// Separate matrices q, k and v under their usual names.
AttentionWeights load_attention(Weights::Layer& at, const DecoderConfig& config);

struct FeedForwardWeights {
  const Linear* gate_up = nullptr;  // [2 feed_forward, hidden]
  const Linear* down = nullptr;     // [hidden, feed_forward]
};
// gate, up and down under their usual names.
FeedForwardWeights load_feed_forward(Weights::Layer& at, const DecoderConfig& config, Activation activation);

// Queries at position p times 1 + beta * ln(1 + floor(p / period)), for contexts beyond the trained length.
struct QueryScale {
  float beta = 0;  // 0: none
  int32_t period = 1;
};

// Attention over one paged state, without the output matrix: [rows, q_dim].
Matrix attention_block(Pass& pass, const AttentionWeights& weights, const Normed& x, int state, const Rope& rope,
                       const AttentionSettings& settings, const QueryScale& query_scale = {});

// hidden += linear(x), or hidden += post_norm(linear(x)) if post_norm is not null.
void add_block(Pass& pass, Matrix x, const Linear* linear, const Vector* post_norm, Matrix hidden);

// Skips the layers behind the last one, which predict further tokens (MTP). GGUF counts them as layers, Hugging Face
// does not.
void skip_further_layers(Weights& weights, DecoderConfig& config);

// The activation that a Hugging Face config names under `key`. GGUF files name none; for them it is `usual`.
Activation read_activation(const WeightSource& source, std::string_view key, Activation usual);

// The name of the output matrix: `own` if the file has it, else `tied` (the embedding). An untied checkpoint without
// `own` is an error.
TensorName output_head_name(const Weights& weights, const TensorName& own, const TensorName& tied);
// The output matrix, [vocab, hidden].
const Linear* load_output_head(Weights& weights, const DecoderConfig& config,
                               const TensorName& own = {"output.weight", "lm_head.weight"},
                               const TensorName& tied = {"token_embd.weight", "model.embed_tokens.weight"});

// The attention norms of one layer, of each head or of all heads at once.
void load_qk_norms(Weights::Layer& at, const DecoderConfig& config, bool whole, AttentionWeights& attention);

// GGUF stores q and k of some architectures with rotary pairs interleaved; Hugging Face stores them half a head apart.
inline bool is_gguf(const WeightSource& source) { return source.convention() == WeightSource::Convention::Gguf; }
// The RoPE style of such an architecture. Adapters of the other convention are reordered.
RopeStyle style_of_pairs(Weights& weights, const DecoderConfig& config);

// Gemma divides scores by the square root of query_pre_attn_scalar. GGUF files lack that key: the 27B of each
// generation divides by hidden / heads, the other sizes by the head size.
double gemma_score_divisor(const WeightSource& source, const DecoderConfig& config, int64_t layers_of_27b);

// The prefix of the text model's tensors in a Hugging Face folder. Multimodal models have one that depends on the
// version of transformers.
std::string text_model_prefix(const WeightSource& source);

// The attention window of each layer: from "layer_types" of a Hugging Face config or the list of a GGUF file; otherwise
// all layers but every `pattern`-th have the window (1: no layer has it, 0: all layers have it).
std::vector<int> layer_windows(const WeightSource& source, const DecoderConfig& config, int64_t pattern);
// The same for Qwen: with "use_sliding_window" the layers from "max_window_layers" on have the window, else none.
std::vector<int> upper_layer_windows(const WeightSource& source, const DecoderConfig& config);

}  // namespace millrace
