#include "models/draft_input.h"

namespace millrace {

DraftStream begin_draft(Pass& p, const DraftInput& input, const WeightView& table, float scale) {
  const DraftFeatures& from = p.batch.features;
  const int64_t width = table.cols;
  Matrix features = p.buffer("given features", from.matrix.cols);  // the target's working type may differ
  p.ops.gather(from.matrix, from.rows, features);
  const Matrix hidden = p.buffer("hidden", DType::F32, p.rows(), width);
  const Matrix embedded = p.buffer("embedded", DType::F32, p.rows(), width), both = p.buffer("both", 2 * width);
  p.ops.embed({.table = table, .ids = p.batch.tokens, .scale = scale, .out = embedded, .chosen = p.batch.chosen});
  p.rms_norm(embedded, input.embedding_norm, both.columns(0, width));
  if (input.reduce != nullptr) {
    if (from.own) {
      p.ops.copy(features, hidden);
    } else {
      p.linear(p.rms_norm(features, nullptr), input.reduce, hidden);
    }
    features = hidden;
  }
  p.rms_norm(features, input.feature_norm, both.columns(width, width));
  if (input.adds_to_norm) p.rms_norm(hidden, input.feature_norm, hidden);
  if (input.combine != nullptr) p.linear(both, input.combine, hidden);
  return {hidden, both};
}

}  // namespace millrace
