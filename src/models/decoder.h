// The decoder of most architectures: norm, GQA attention with RoPE, norm, gated feed-forward. Optional: norms of q and
// k, norms after the blocks in addition to or instead of those before, windows, layers without RoPE, soft caps,
// multipliers. An architecture's file fills in the fields.
#pragma once

#include <optional>

#include "models/delta_net.h"
#include "models/draft_input.h"
#include "models/experts.h"
#include "models/latent_attention.h"
#include "models/model.h"
#include "models/pooling_head.h"

namespace millrace {

enum class LayerRope : uint8_t { Global, Local, None };

struct DecoderLayer {
  const Vector* attention_norm = nullptr;  // [hidden]; null: no norm before the block
  AttentionWeights attention;
  std::optional<LatentAttention> latent;        // instead of `attention`, except for its output matrix
  std::optional<DeltaNet> delta;                // instead of attention, of which only `out` is used
  const Vector* sinks = nullptr;                // [heads]: logits that join the denominators of attention; null: none
  const Vector* post_attention_norm = nullptr;  // [hidden]; null: no norm after the block
  const Vector* feed_norm = nullptr;            // as attention_norm
  FeedForwardWeights feed;
  std::optional<Experts> experts;          // instead of `feed`
  const Vector* post_feed_norm = nullptr;  // as post_attention_norm
  int state = 0;                           // paged state of its keys and values in the StateLayout
  int window = 0;                          // positions that a query attends to; 0: all
  LayerRope rope = LayerRope::Global;
};

class Decoder final : public Model {
 public:
  explicit Decoder(DecoderConfig c);
  const DecoderConfig& config() const override { return config_; }
  int64_t long_from() const override { return rope.long_from; }
  int64_t pooled_width() const override { return pooling ? pooling->width : 0; }
  bool keeps_row_order() const override;
  bool pools_to_scores() const override { return pooling && pooling->scores; }
  bool gives_features() const override { return !pooling && !multiplied_; }
  ModelEnds ends() const override { return {embedding, head}; }
  bool is_draft_head() const override { return draft.has_value(); }
  void forward(Pass& pass) const override;

  // Adds a layer with norms, attention and feed-forward under their usual names, and its paged state.
  DecoderLayer& add_layer(Weights::Layer& at, StateLayout& state);
  // The same without the feed-forward, which the caller fills in.
  DecoderLayer& add_attention(Weights::Layer& at, StateLayout& state);
  // The same with experts in the place of the feed-forward, if the file has them for this layer.
  DecoderLayer& add_mixture_layer(Weights::Layer& at, StateLayout& state, const RouterSettings& settings);
  // The same with norms after the blocks instead of before them.
  DecoderLayer& add_post_norm_layer(Weights::Layer& at, StateLayout& state);
  // Adds a layer with latent attention and experts or, if the file has none for this layer, a feed-forward.
  DecoderLayer& add_latent_layer(Weights::Layer& at, StateLayout& state, const LatentSizes& sizes,
                                 const RouterSettings& settings);
  // Adds a layer with its paged state; the caller fills in the weights.
  DecoderLayer& add_bare_layer(StateLayout& state);
  // Embedding, final norm and output matrix under their usual names; `hf` is the prefix of a Hugging Face text model,
  // `add` is added to the norm's weights.
  void load_ends(Weights& weights, const std::string& hf = "model.", float add = 0);
  // Multiplies what every block adds to the residual stream by m > 0. For models with norms before the blocks only.
  void multiply_blocks_by(double m);

  RopeFrequencies rope, local_rope;  // local_rope: for layers with LayerRope::Local
  RopeStyle rope_style = RopeStyle::Halves;
  Activation activation = Activation::Silu;
  float embedding_scale = 1;
  float score_scale;  // default: 1 / sqrt(head_dim)
  QueryScale query_scale;
  float logit_scale = 1;
  float score_cap = 0, logit_cap = 0;     // cap c: x becomes c tanh(x / c); 0: no cap
  bool residual_from_norm = false;        // a block adds to the norm of the residual stream instead of to the stream
  const WeightView* embedding = nullptr;  // [vocab, hidden]
  std::vector<DecoderLayer> layers;
  const Vector* norm = nullptr;        // [hidden]
  const Linear* head = nullptr;        // [vocab, hidden]
  bool bidirectional = false;          // attention to later positions too; needs `pooling`
  std::optional<PoolingHead> pooling;  // instead of `head`
  std::optional<DraftInput> draft;     // instead of the embedding alone: this is a draft head

 private:
  void keep_features(Pass& pass, int layer, Matrix hidden) const;
  void finish_draft(Pass& pass, Matrix hidden) const;
  bool reads_all_rows() const;

  DecoderConfig config_;
  bool multiplied_ = false;  // the residual stream has another scale than in the checkpoint
};

// Reads the factors of Granite's config. Call before layers are added.
void read_granite_multipliers(const WeightSource& source, Decoder& model);

}  // namespace millrace
