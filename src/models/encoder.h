// Encoders: BERT and its relatives. Attention goes in both directions, so a sequence is computed in one step, and the
// result is one pooled vector. All layers share one paged state: keys and values are not needed after their layer.
#pragma once

#include "models/pooling_head.h"

namespace millrace {

struct EncoderLayer {
  std::optional<LayerNormWeights> attention_norm;  // [hidden]; none: ModernBERT's first layer
  const Linear* qkv = nullptr;                     // [q_dim + 2 kv_dim, hidden]
  const Linear* out = nullptr;                     // [hidden, q_dim]
  LayerNormWeights feed_norm;                      // [hidden]
  const Linear* up = nullptr;    // [feed_forward, hidden]; gated: [2 feed_forward, hidden], gate first
  const Linear* down = nullptr;  // [hidden, feed_forward]
  int window = 0;                // positions to each side, its own counted on both; 0: all
  bool local_rope = false;
};

class Encoder final : public Model {
 public:
  Encoder(DecoderConfig config, StateLayout& state);
  const DecoderConfig& config() const override { return config_; }
  int64_t pooled_width() const override { return head.width; }
  bool pools_to_scores() const override { return head.scores; }
  bool has_token_types() const override { return types != nullptr && types->rows > 1; }
  void forward(Pass& pass) const override;

  bool norm_first = false;  // norms before the blocks and at the end; false: a norm after each block
  bool gated = false;       // feed-forward
  Activation activation = Activation::GeluErf;
  RopeFrequencies rope, local_rope;       // no table: no RoPE
  const WeightView* embedding = nullptr;  // [vocab, hidden]
  const WeightView* positions = nullptr;  // [position_offset + context, hidden] or null
  int64_t position_offset = 0;            // rows of the position table before that of position 0
  const WeightView* types = nullptr;      // [token types, hidden] or null
  LayerNormWeights embedding_norm;        // [hidden]
  std::vector<EncoderLayer> layers;
  std::optional<LayerNormWeights> final_norm;  // [hidden]
  PoolingHead head;

 private:
  Matrix embed(Pass& pass) const;
  Matrix input(Pass& pass, Matrix hidden, const std::optional<LayerNormWeights>& norm) const;
  void norm_after(Pass& pass, Matrix hidden, const std::optional<LayerNormWeights>& norm) const;
  Matrix attend(Pass& pass, const EncoderLayer& layer, Matrix x, const Rope& rotation) const;

  DecoderConfig config_;
  int state_;
};

// Rows of BERT's position table before that of the first token: RoBERTa's positions begin behind the padding token's.
int64_t first_position(const WeightSource& source);

// Config of an encoder, with the context limited to that of sentence_bert_config.json.
DecoderConfig read_encoder_config(const WeightSource& source, const PoolingSettings& pooling, DecoderKeys keys);

// Weight and bias of a LayerNorm; names without ".weight". The oldest checkpoints call them gamma and beta.
template <class From>
LayerNormWeights load_layer_norm(From& from, const TensorName& name, int64_t n) {
  const bool old = from.has({"", name.hf + ".gamma"});
  const TensorName weight{name.gguf + ".weight", name.hf + (old ? ".gamma" : ".weight")};
  const TensorName bias{name.gguf + ".bias", name.hf + (old ? ".beta" : ".bias")};
  return {from.vector(weight, n), from.optional_vector(bias, n)};
}

}  // namespace millrace
