// The decoder that most architectures are: norm, rotary GQA attention, norm, gated feed-forward, with optional norms of
// q and k, norms behind the blocks, windows and soft caps. An architecture's file fills it in.
#pragma once

#include "models/blocks.h"
#include "models/model.h"

namespace millrace {

struct DecoderLayer {
  const Vector* attention_norm = nullptr;  // [hidden]
  AttentionWeights attention;
  const Vector* post_attention_norm = nullptr;  // [hidden]; null: no norm behind the block
  const Vector* feed_norm = nullptr;            // [hidden]
  FeedForwardWeights feed;
  const Vector* post_feed_norm = nullptr;  // as post_attention_norm
  int state = 0;                           // its keys and values in the StateLayout
  int window = 0;                          // positions that a query sees; 0: all
  bool local_rope = false;
};

class Decoder final : public Model {
 public:
  explicit Decoder(DecoderConfig c);
  const DecoderConfig& config() const override { return config_; }
  int64_t long_from() const override { return rope.long_from; }
  void forward(Pass& pass) const override;

  // Norms, attention and feed-forward under their usual names, and the layer's keys and values.
  DecoderLayer& add_layer(Weights::Layer& at, StateLayout& state);
  // A layer with keys and values but without weights yet.
  DecoderLayer& add_bare_layer(StateLayout& state);
  // Embedding, final norm and output matrix under their usual names.
  void load_ends(Weights& weights);

  RopeFrequencies rope, local_rope;  // local_rope: of layers that ask for it
  RopeStyle rope_style = RopeStyle::Halves;
  Activation activation = Activation::Silu;
  float embedding_scale = 1;
  float score_scale;                      // 1 / sqrt(head_dim) unless an architecture says otherwise
  float score_cap = 0, logit_cap = 0;     // c: x becomes c tanh(x / c); 0: none
  bool residual_from_norm = false;        // blocks add to the norm of the residual stream, not to the stream itself
  const WeightView* embedding = nullptr;  // [vocab, hidden]
  std::vector<DecoderLayer> layers;
  const Vector* norm = nullptr;  // [hidden]
  const Linear* head = nullptr;  // [vocab, hidden]

 private:
  DecoderConfig config_;
};

}  // namespace millrace
