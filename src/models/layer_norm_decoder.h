// The decoder of architectures with LayerNorm: attention and feed-forward in sequence or in parallel, with or without
// biases, gate, RoPE, learned positions and norms of q and k. An architecture's file sets the fields, then calls
// load().
#pragma once

#include "models/blocks.h"
#include "models/model.h"

namespace millrace {

struct LayerNormWeights {
  const Vector *weight = nullptr, *bias = nullptr;  // null: ones, zeros
};

// How the blocks of a layer add to the residual stream x.
enum class Residual : uint8_t {
  Serial,          // x += attention(norm1(x)); x += feed(norm2(x))
  Parallel,        // x += attention(norm1(x)) + feed(norm2(x))
  ParallelShared,  // x += attention(norm1(x)) + feed(norm1(x))
  NormAfter,       // x = norm1(x + attention(x)); x = norm2(x + feed(x))
};

struct LayerNormLayer {
  LayerNormWeights attention_norm;  // [hidden]
  const Linear* qkv = nullptr;      // [q_dim + 2 kv_dim, hidden]
  LayerNormWeights q_norm, k_norm;  // of each head: [head_dim], or [q_dim] and [kv_dim]; no weight: no norms
  const Linear* out = nullptr;      // [hidden, q_dim]
  LayerNormWeights feed_norm;       // [hidden]; unused with Residual::ParallelShared
  const Linear* up = nullptr;       // [feed_forward, hidden]; with a gate [2 feed_forward, hidden], gate first
  const Linear* down = nullptr;     // [hidden, feed_forward]
  int state = 0;                    // paged state of its keys and values in the StateLayout
  int window = 0;                   // positions that a query attends to; 0: all
  bool rotates = true;              // false: q and k without RoPE
  float score_scale = 1;
};

// How a Hugging Face folder stores the tensors. Norms are given without ".weight". GGUF has one set of names for all.
struct HfTensors {
  std::string base = "model.", layer = "layers.{}.", embedding = "embed_tokens.weight", positions = {}, norm = "norm",
              head = "lm_head.weight";
  std::string attention_norm = "input_layernorm", feed_norm = "post_attention_layernorm";
  std::string qkv = {};  // q, k and v in one matrix; empty: three matrices self_attn.{q,k,v}_proj
  std::string out = "self_attn.o_proj.weight";
  std::string gate = {};  // empty: feed-forward without gate
  std::string up = "mlp.up_proj.weight", down = "mlp.down_proj.weight";
  bool transposed = false;   // matrices of layers are stored as [in, out]
  bool qkv_by_head = false;  // rows of qkv: q, k and v of one head, then of the next
  float norm_offset = 0;     // added to the weights of norms
};

class LayerNormDecoder final : public Model {
 public:
  explicit LayerNormDecoder(DecoderConfig c) : embedded(c.hidden), config_(std::move(c)) {}
  const DecoderConfig& config() const override { return config_; }
  int64_t long_from() const override { return rope.long_from; }
  bool keeps_row_order() const override { return keeps_row_order_; }
  void forward(Pass& pass) const override;

  // Declares all tensors and the state, except norms of q and k. Layers get the config's window.
  void load(Weights& weights, StateLayout& state, const HfTensors& hf);

  Residual residual = Residual::Serial;
  RopeFrequencies rope;  // no table: no layer has RoPE
  RopeStyle rope_style = RopeStyle::Halves;
  Activation activation = Activation::Silu;
  bool norm_weights = true, final_norm = true;
  float logit_scale = 1;
  int64_t position_offset = 0;            // rows of the position table before that of position 0
  int64_t embedded;                       // width of the embedding; OPT-350M projects it to and from the hidden size
  const Linear* project_in = nullptr;     // [hidden, embedded] or null
  const Linear* project_out = nullptr;    // [embedded, hidden] or null
  const WeightView* embedding = nullptr;  // [vocab, embedded]
  const WeightView* positions = nullptr;  // [position_offset + context, hidden]; null: no learned positions
  std::vector<LayerNormLayer> layers;
  LayerNormWeights norm;         // [hidden]
  const Linear* head = nullptr;  // [vocab, embedded]

 private:
  Matrix embed(Pass& pass) const;
  Matrix norm_before(Pass& pass, Matrix hidden, const LayerNormWeights& norm) const;
  void norm_after(Pass& pass, Matrix hidden, const LayerNormWeights& norm) const;
  Matrix attend(Pass& pass, const LayerNormLayer& layer, Matrix x, const Rope& rotation) const;

  bool gated_ = false, keeps_row_order_ = false;
  DecoderConfig config_;
};

// read_decoder_config with the epsilon of LayerNorm. Without a window: most of these architectures ignore one.
DecoderConfig read_layer_norm_config(const WeightSource& source, DecoderKeys keys);

// The number of rows of a GGUF tensor, where the metadata may be wrong; nullopt for a Hugging Face folder.
std::optional<int64_t> gguf_rows(const WeightSource& source, std::string_view tensor);

}  // namespace millrace
