// One forward pass over a batch: its buffers, and the steps that architectures share.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "cache/state_cache.h"
#include "dataflow/ops.h"
#include "models/activations.h"
#include "models/batch.h"
#include "models/decoder_config.h"
#include "models/rope_frequencies.h"

namespace millrace {

// An RMS norm of x that is not computed yet: the consuming op may compute it in its own kernel.
struct Normed {
  Matrix x;
  const Vector* weight;  // null: x itself, without a norm
};

struct Rope {
  Matrix angles;  // [rows, rotary_dim] f32: cosines, then sines; 0 columns: no RoPE
  RopeStyle style = RopeStyle::Halves;
};

struct AttentionSettings {
  int heads = 0;
  float scale = 1;                // of q k^T
  float softcap = 0;              // c: scores become c tanh(score / c); 0: none
  int window = 0;                 // positions that a query attends to; 0: all up to its own
  const Vector* sinks = nullptr;  // [heads]: logits that join each head's denominator; null: none
  bool bidirectional = false;     // rows attend to later rows too, within the window on both sides
  // RMS norms of the heads of q and of k, before RoPE; null: none.
  const Vector *q_norm = nullptr, *k_norm = nullptr;
};

// Calibrated maxima of attention scores, and the buffer where a calibration records score ranges.
struct ScoreKnowledge {
  std::vector<const float*> phi;   // by paged state: [heads] in device memory; null or no entry: not calibrated
  ScoreRange* observed = nullptr;  // [paged states][heads] in device memory; null: no calibration running
};

class Pass {
 public:
  Pass(Ops& ops, Activations& buffers, StateCache& state, const DecoderConfig& config, const PlacedBatch& batch);

  Ops& ops;
  const ScoreKnowledge* scores = nullptr;
  const PlacedBatch& batch;
  const DecoderConfig& config;
  Matrix logits;    // [rows that want logits, vocab] f32, from head()
  Matrix features;  // of the model's FeatureTaps, or of a draft head the hidden states that continue its draft
  Matrix last;  // [wanted rows, hidden]: hidden states after the final norm; of a model that pools: [sequences, width]

  // A buffer of the architecture, [rows(), cols] in the working type. Requests of one name share memory.
  Matrix buffer(std::string_view name, int64_t cols) { return buffer(name, ops.working(), rows_, cols); }
  Matrix buffer(std::string_view name, DType dtype, int64_t rows, int64_t cols);
  int64_t rows() const { return rows_; }
  SlotView slot(int state) const { return state_.slot(state); }  // one slot state of all sequences

  // The residual stream: embedding rows times `scale`, [rows, hidden]. It is f32 on every device, because each layer
  // adds to it and its bytes are few compared to the weights.
  Matrix embed(const WeightView& table, float scale = 1);

  Normed rms_norm(Matrix x, const Vector* weight) const { return {x, weight}; }
  void rms_norm(Matrix x, const Vector* weight, Matrix out);
  void layer_norm(Matrix x, const Vector* weight, const Vector* bias, Matrix out);
  // RMS norm of each group of weight->n columns, in place: of each head, or of all heads at once.
  void group_norm(Matrix x, const Vector* weight);
  // LayerNorm of each head, in place. Weights of [x.cols] are each head's own, those of [x.cols / heads] are shared.
  void head_layer_norm(Matrix x, int heads, const Vector* weight, const Vector* bias);

  void linear(Matrix x, const Linear* weights, Matrix y) { ops.linear(x, *weights, y); }
  void linear(const Normed& x, const Linear* weights, Matrix y);
  void norm_and_linear(const Normed& x, Matrix normed, const Linear* weights, Matrix y) {  // `normed` holds the norm
    ops.norm_and_linear(norm_args(x.x, x.weight, normed), *weights, y);
  }
  void add_linear(Matrix x, const Linear* weights, Matrix y) { ops.add_linear(x, *weights, y); }  // y += W x
  void add(Matrix y, const Normed& x);                                                            // y += norm(x)
  // act(gate(x)) * up(x), in the buffer "feed".
  Matrix gated_linear(const Normed& x, const Linear* gate_up, Activation activation);
  Matrix gated_linear(Matrix x, const Linear* gate_up, Activation activation);
  // act(up(x)) in the buffer "feed"; with `gated`, `up` holds gate and up, as above.
  Matrix feed_forward(Matrix x, const Linear* up, bool gated, Activation activation);

  // Cosines and sines for every row's position, computed once per pass and table.
  Rope rope(const RopeFrequencies& frequencies, RopeStyle style, std::string_view table = "rope angles");

  void rotate(Matrix x, int heads, const Rope& rope);  // applies RoPE to each head, in place

  // Applies the settings' norms and RoPE to q and k, stores k and v in the paged state, and attends over it: q -> out.
  void attend(int state, Matrix q, Matrix k, Matrix v, const Rope& rope, const AttentionSettings& settings, Matrix out);

  // The new rows of latent attention: fills in the layer's state and the batch.
  void write_latent(int state, LatentWriteOp::Args args);
  // Attends over the layer's own state, which holds the new rows already.
  void attend_written(int state, Matrix q, const AttentionSettings& settings, Matrix out);
  // The same for the first `sequences` of the batch.
  void attend_written(int state, Matrix q, const AttentionSettings& settings, Matrix out, size_t sequences);

  // Attends over keys and values that another layer has stored. q has its RoPE already.
  void attend_stored(int state, Matrix q, const AttentionSettings& settings, Matrix out);

  AttentionArgs attention_args(int state, Matrix q, const AttentionSettings& settings, Matrix out) const;
  bool observes_scores() const { return scores != nullptr && scores->observed != nullptr; }

  // Drops all rows except those whose logits are wanted. `kept` are replaced by their wanted rows, and later buffers
  // have that many rows. A prompt then runs the last feed-forward for one row only, a chunk in the middle of a prompt
  // for none. Required before head().
  void narrow(std::initializer_list<Matrix*> kept);

  // One row for each sequence, in the working type.
  Matrix pool(Matrix x, PoolKind kind);

  // Fills `logits` and `last`. Rows that want only hidden states get no logits.
  void head(const Normed& x, const Linear* weights);
  void head(Matrix x, const Linear* weights);  // x: `last`, or a projection of it

 private:
  NormOp::Args norm_args(Matrix x, const Vector* weight, Matrix out) const;
  template <class Run>
  void with_input(const Normed& x, Run run);
  template <class Run>
  void with_input(Matrix x, Run run) {
    run(x);
  }
  template <class X>
  Matrix gate(const X& x, const Linear* gate_up, Activation activation);

  Activations& buffers_;
  StateCache& state_;
  int64_t rows_;
  bool narrowed_ = false;
};

}  // namespace millrace
