// The input of a draft head: the target's hidden state of each token (its features), and the embedding of the token
// behind it. EAGLE-3 heads and multi-token prediction (MTP) heads combine the two in different ways.
#pragma once

#include "models/blocks.h"

namespace millrace {

struct DraftInput {
  const Linear* reduce = nullptr;          // EAGLE-3: [hidden, target's features]; null: MTP
  const Vector* embedding_norm = nullptr;  // [hidden]
  const Vector* feature_norm = nullptr;    // [hidden]
  // MTP: [hidden, 2 hidden], maps both norms to the residual stream. Null, EAGLE-3: the features are the residual
  // stream, and the first attention reads both norms.
  const Linear* combine = nullptr;
  bool adds_to_norm = false;  // EAGLE-3: the residual stream is the norm of the features
};

struct DraftStream {
  Matrix hidden;  // [rows, hidden] f32: the residual stream
  Matrix both;    // [rows, 2 hidden]: norms of embeddings and features
};
DraftStream begin_draft(Pass& pass, const DraftInput& input, const WeightView& embedding, float embedding_scale);

}  // namespace millrace
