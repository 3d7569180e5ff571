// A decoder whose layers differ in kind. A layer has any of: attention, a Mamba-2 mixer, a short convolution, which
// all read one norm of the residual stream; then a feed-forward or experts behind a second norm.
#pragma once

#include <optional>

#include "models/experts.h"
#include "models/mamba2_mixer.h"
#include "models/model.h"
#include "models/short_conv.h"

namespace millrace {

struct HybridLayer {
  const Vector* norm = nullptr;  // [hidden]
  std::optional<AttentionWeights> attention;
  int state = 0;  // paged state of the attention's keys and values
  std::optional<Mamba2Mixer> mamba;
  std::optional<ShortConv> conv;
  const Vector* feed_norm = nullptr;  // [hidden]; null: no feed-forward
  FeedForwardWeights feed;            // without a gate, gate_up is the up matrix, [feed_forward, hidden]
  bool gated = true;
  std::optional<Experts> experts;  // instead of `feed`

  bool mixes() const { return attention || mamba || conv; }
};

// Factors on inputs and outputs of blocks (Falcon-H1).
struct HybridFactors {
  float attention_in = 1, attention_out = 1, mamba_in = 1, mamba_out = 1, gate = 1, feed_out = 1;
};

class Hybrid final : public Model {
 public:
  explicit Hybrid(DecoderConfig c);
  const DecoderConfig& config() const override { return config_; }
  int64_t long_from() const override { return rope.long_from; }
  void forward(Pass& pass) const override;

  // Declares attention with its paged state under the usual names.
  void add_attention(HybridLayer& layer, Weights::Layer& at, StateLayout& state) const;
  // Embedding, final norm and output matrix.
  void load_ends(Weights& weights, const TensorName& table, const TensorName& final_norm);
  // Multiplies what every block adds to the residual stream by m > 0, as Decoder::multiply_blocks_by.
  void multiply_blocks_by(double m);

  RopeFrequencies rope;
  bool rotates = true;
  RopeStyle rope_style = RopeStyle::Halves;
  Activation activation = Activation::Silu;
  float embedding_scale = 1, score_scale = 1, logit_scale = 1;
  HybridFactors factors;
  const WeightView* embedding = nullptr;  // [vocab, hidden]
  std::vector<HybridLayer> layers;
  const Vector* norm = nullptr;  // [hidden]
  const Linear* head = nullptr;  // [vocab, hidden]

 private:
  void mix(Pass& pass, const HybridLayer& layer, const Rope& rope, bool last, Matrix& hidden) const;
  void feed(Pass& pass, const HybridLayer& layer, Matrix hidden) const;

  DecoderConfig config_;
};

// Reads the factors of Granite's config. Call before layers are added.
void read_granite_multipliers(const WeightSource& source, Hybrid& model);

}  // namespace millrace
