// One forward pass in the words of the papers: the batch, the buffers it flows through, and the steps every decoder
// shares.
#pragma once

#include <vector>

#include "cache/state_cache.h"
#include "dataflow/ops.h"
#include "models/batch.h"
#include "models/decoder_config.h"
#include "models/rope_frequencies.h"

namespace millrace {

struct PassWidths {  // columns of the buffers
  int64_t hidden = 0, qkv = 0, attended = 0, gate_up = 0, feed = 0, rotary = 0, vocab = 0;
};
PassWidths common_widths(const DecoderConfig& config);

// Number formats of the buffers. The residual stream is f32 on every device: each layer adds to it, and in decode its
// bytes are nothing beside the weights'. What linear layers take and give is in the working type.
struct ActivationTypes {
  DType working = DType::F32;
  static constexpr DType kResidual = DType::F32;
};

// Activations for the largest batch, allocated once. Shapes are [rows, columns].
struct Activations {
  Matrix hidden, residual;  // [rows, hidden], in the residual's type
  Matrix normed;            // [rows, hidden]
  Matrix qkv;               // [rows, q_dim + 2 kv_dim]
  Matrix attended;          // [rows, q_dim]
  Matrix gate_up, feed;     // [rows, 2 feed_forward], [rows, feed_forward]
  Matrix angles[2];         // [rows, rotary_dim] f32; two where layers differ in their rope
  Matrix wanted;            // [logit rows, hidden], in the residual's type
  Matrix last;              // [logit rows, hidden]
  Matrix logits;            // [logit rows, vocab] f32

  struct Sizes {
    PassWidths widths;
    int64_t rows = 0, logit_rows = 0;
    ActivationTypes types;
  };
  static size_t bytes(const Sizes& sizes);
  Activations(const Sizes& sizes, Memory& memory);

 private:
  struct Buffer {
    Matrix Activations::*matrix;
    DType dtype;
    int64_t rows, cols;
  };
  static std::vector<Buffer> buffers(const Sizes& sizes);
  std::unique_ptr<Arena> arena_;
};

struct AttentionSettings {
  float scale = 1;
  float softcap = 0;
  int window = 0;
};

// The RMS norm of x as what a linear layer takes: not computed yet, since some kernels do that themselves.
struct Normed {
  Matrix x;
  const float* weight;
};

// The norm behind a linear layer that adds to the residual stream, and the layer that takes it: what comes next.
struct Following {
  const float* norm = nullptr;
  const Linear* linear = nullptr;
};

// What is known of the scores of each layer's heads, and where to note what is seen of them.
struct ScoreKnowledge {
  std::vector<const float*> phi;   // by layer: [heads] where the kernels run; null, or no layer: not calibrated
  ScoreRange* observed = nullptr;  // [layers][heads] where the kernels run; null: nobody asks
};

class Pass {
 public:
  Pass(Ops& ops, Activations& buffers, StateCache& kv, const DecoderConfig& config, const PlacedBatch& batch);

  Ops& ops;
  const ScoreKnowledge* scores = nullptr;
  const PlacedBatch& batch;
  const DecoderConfig& config;

  // The buffers, narrowed to this batch.
  Matrix hidden, normed, residual, qkv, attended, gate_up, feed, last, logits;
  Matrix q, k, v;  // views of qkv
  std::span<const int32_t> positions;

  // The tokens' rows of the table, times `scale`.
  void embed(const WeightView& table, Matrix out, float scale = 1) {
    ops.embed({.table = table, .ids = batch.tokens, .scale = scale, .out = out, .chosen = batch.chosen});
  }
  // For the rows of y: the head leaves out those whose logits are not wanted, which come last.
  void linear(Matrix x, const Linear* weights, Matrix y) { ops.linear(x.first_rows(y.rows), *weights, y); }
  void add_linear(Matrix x, const Linear* weights, Matrix y) { ops.linear(x, *weights, y, /*accumulate=*/true); }
  void add_linear(Matrix x, const Linear* weights, Matrix y, const Following& next);
  Normed rms_norm(Matrix x, const float* weight) const { return {x, weight}; }
  void linear(const Normed& x, const Linear* weights, Matrix y);
  void rms_norm(Matrix x, const float* weight, Matrix out);
  void layer_norm(Matrix x, const float* weight, const float* bias, Matrix out);
  void head_norm(Matrix x, int heads, const float* weight);  // RMS norm of each head, in place

  // Prepares the angles of table 0 or 1, once per pass; turn() then has them applied to q and k on their way to
  // attention.
  void prepare_rope(const RopeFrequencies& frequencies, int table = 0);
  void turn(RopeStyle style, int table = 0);

  // Turns q and k where turn() was called, stores k and v, then attends: q -> attended. Behind the last layer's keys
  // and values only the rows whose logits are wanted matter: from there on `hidden`, `attended` and the buffers of what
  // follows have no others.
  void attend(int64_t layer, const AttentionSettings& settings);

  // feed = act(gate(x)) * up(x).
  void gated_linear(Matrix x, const Linear* gate_up_weights, Activation activation);
  void gated_linear(const Normed& x, const Linear* gate_up_weights, Activation activation);

  // The output matrix on the norm of the wanted rows: logits.
  void linear_of_wanted(const Normed& x, const Linear* head);

 private:
  void activate_gate(Activation activation);  // feed = act(gate) * up, of gate_up
  void keep_wanted_rows();

  Activations& buffers_;
  StateCache& kv_;
  RopeStyle turn_style_ = RopeStyle::Halves;
  Matrix turn_angles_;  // no columns: nothing turns
};

}  // namespace millrace
