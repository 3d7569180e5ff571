// Weights that many decoders share in shape and name.
#pragma once

#include "models/pass.h"
#include "models/weights.h"

namespace millrace {

struct AttentionWeights {
  const Linear* qkv = nullptr;  // [q_dim + 2 kv_dim, hidden]
  const Linear* out = nullptr;  // [hidden, q_dim]
};
// q, k and v as separate matrices under their usual names.
AttentionWeights load_attention(Weights::Layer& at, const DecoderConfig& config);

struct FeedForwardWeights {
  const Linear* gate_up = nullptr;  // [2 feed_forward, hidden]
  const Linear* down = nullptr;     // [hidden, feed_forward]
};
// gate, up and down under their usual names.
FeedForwardWeights load_feed_forward(Weights::Layer& at, const DecoderConfig& config, Activation activation);

// out = down(act(gate(x)) * up(x)); add_feed_forward adds it to out instead, whose norm comes next.
void feed_forward(Pass& pass, const FeedForwardWeights& weights, Activation activation, Matrix x, Matrix out);
void add_feed_forward(Pass& pass, const FeedForwardWeights& weights, Activation activation, const Normed& x, Matrix out,
                      const Following& next);

// What follows a layer: the attention of the next one, or what the last one leads to.
template <class Layer>
Following after_layer(const std::vector<Layer>& layers, size_t i, const Following& end) {
  return i + 1 < layers.size() ? Following{layers[i + 1].attention_norm, layers[i + 1].attention.qkv} : end;
}

// The activation a Hugging Face config names under `key`; GGUF files name none and mean `usual`.
Activation read_activation(const WeightSource& source, std::string_view key, Activation usual);

// The name of the output matrix: its own, or the embedding's where the file ties the two. A config that says that they
// are apart stands in the way of tying: its own matrix is missing when it is not there.
TensorName output_head_name(const Weights& weights, const TensorName& own, const TensorName& tied);
// That matrix, over the hidden state.
const Linear* load_output_head(Weights& weights, const DecoderConfig& config,
                               const TensorName& own = {"output.weight", "lm_head.weight"},
                               const TensorName& tied = {"token_embd.weight", "model.embed_tokens.weight"});

// GGUF holds the q and k of some architectures with rotary pairs side by side, Hugging Face half a head apart.
inline bool is_gguf(const WeightSource& source) { return source.convention() == WeightSource::Convention::Gguf; }

// What Gemma divides scores by the root of: query_pre_attn_scalar. GGUF files do not carry it; the 27B is the one model
// of each generation that divides by hidden / heads rather than by the head size.
double gemma_score_divisor(const WeightSource& source, const DecoderConfig& config, int64_t layers_of_27b);

// The window of each layer where a config says which layers slide: "layer_types" of Hugging Face, or every layer but
// each `pattern`-th (1: none slides, 0: all do).
std::vector<int> layer_windows(const WeightSource& source, const DecoderConfig& config, int64_t pattern);
// The same for Qwen: none slides without "use_sliding_window", else those from "max_window_layers" on.
std::vector<int> upper_layer_windows(const WeightSource& source, const DecoderConfig& config);

}  // namespace millrace
