// One forward pass over a batch: the buffers it flows through, and the steps that architectures share.
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

// The RMS norm of x, not computed yet: the op that takes it decides whether its kernel computes it.
struct Normed {
  Matrix x;
  const Vector* weight;
};

struct Rope {
  Matrix angles;  // [rows, rotary_dim] f32: cosines, then sines; no columns: no rotation
  RopeStyle style = RopeStyle::Halves;
};

struct AttentionSettings {
  int heads = 0;
  float scale = 1;    // of q k^T
  float softcap = 0;  // c: scores become c tanh(score / c); 0: none
  int window = 0;     // positions that a query sees; 0: all up to its own
};

// Calibrated maxima of attention scores, and where a calibration notes the scores it sees.
struct ScoreKnowledge {
  std::vector<const float*> phi;   // by paged state: [heads] in the device's memory; null or no entry: not calibrated
  ScoreRange* observed = nullptr;  // [paged states][heads] in the device's memory; null: no calibration runs
};

class Pass {
 public:
  Pass(Ops& ops, Activations& buffers, StateCache& state, const DecoderConfig& config, const PlacedBatch& batch);

  Ops& ops;
  const ScoreKnowledge* scores = nullptr;
  const PlacedBatch& batch;
  const DecoderConfig& config;
  Matrix logits;  // [rows that want logits, vocab] f32, from head()
  Matrix last;    // [wanted rows, hidden]: hidden states after the final norm

  // A buffer of the architecture: [rows(), cols] in the working type. Matrices of one name share memory.
  Matrix buffer(std::string_view name, int64_t cols) { return buffer(name, ops.working(), rows_, cols); }
  Matrix buffer(std::string_view name, DType dtype, int64_t rows, int64_t cols);
  int64_t rows() const { return rows_; }
  SlotView slot(int state) const { return state_.slot(state); }  // one slot state of all sequences

  // The residual stream, [rows, hidden]: f32 on every device, since each layer adds to it and its bytes are few beside
  // the weights'. Rows of the table, times `scale`.
  Matrix embed(const WeightView& table, float scale = 1);

  Normed rms_norm(Matrix x, const Vector* weight) const { return {x, weight}; }
  void rms_norm(Matrix x, const Vector* weight, Matrix out);
  void layer_norm(Matrix x, const Vector* weight, const Vector* bias, Matrix out);
  void head_norm(Matrix x, int heads, const Vector* weight);  // RMS norm of each head, in place

  void linear(Matrix x, const Linear* weights, Matrix y) { ops.linear(x, *weights, y); }
  void linear(const Normed& x, const Linear* weights, Matrix y);
  void add_linear(Matrix x, const Linear* weights, Matrix y) { ops.add_linear(x, *weights, y); }  // y += W x
  void add(Matrix y, const Normed& x);                                                            // y += norm(x)
  // act(gate(x)) * up(x), in the buffer "feed".
  Matrix gated_linear(const Normed& x, const Linear* gate_up, Activation activation);

  // Cosines and sines of every row's position, computed once per pass and table.
  Rope rope(const RopeFrequencies& frequencies, RopeStyle style, std::string_view table = "rope angles");

  // Applies RoPE to q and k, stores k and v in the paged state, and attends over it: q -> out.
  void attend(int state, Matrix q, Matrix k, Matrix v, const Rope& rope, const AttentionSettings& settings, Matrix out);

  // From here on the pass has only the rows whose logits are wanted. A prompt pays for its last feed-forward once, and
  // a chunk in the middle of a prompt not at all. `kept` are replaced by their wanted rows; buffers asked for
  // afterwards have as many rows. At the latest before head().
  void narrow(std::initializer_list<Matrix*> kept);

  // Fills `logits` and `last`. Rows that only want hidden states get no logits.
  void head(const Normed& x, const Linear* weights);
  void head(Matrix x, const Linear* weights);  // x: last, or what an architecture makes of it

 private:
  NormOp::Args norm_args(Matrix x, const Vector* weight, Matrix out) const;

  Activations& buffers_;
  StateCache& state_;
  int64_t rows_;
  bool narrowed_ = false;
};

}  // namespace millrace
