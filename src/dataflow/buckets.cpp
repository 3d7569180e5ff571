#include "dataflow/buckets.h"

#include <algorithm>

namespace millrace {
namespace {

// The distinct values of `bucket` for arguments up to `most`.
template <class Bucket>
std::vector<int64_t> representatives(int64_t most, Bucket bucket) {
  std::vector<int64_t> all;
  for (int64_t value = 1; value <= most;) {
    all.push_back(bucket(value));
    value = all.back() + 1;
  }
  return all;
}

}  // namespace

std::vector<int64_t> row_buckets(int64_t rows) { return representatives(rows, bucket_rows); }

std::vector<AttentionProblem> attention_buckets(const AttentionProblem& largest) {
  const auto along = [&](int64_t AttentionProblem::*field) {
    return representatives(largest.*field, [&](int64_t value) {
      AttentionProblem probe = largest;
      probe.*field = value;
      return std::max(probe.bucketed().*field, value);
    });
  };
  std::vector<AttentionProblem> all;
  for (const int64_t sequences : along(&AttentionProblem::sequences)) {
    for (const int64_t rows : along(&AttentionProblem::rows)) {
      for (const int64_t context : along(&AttentionProblem::context)) {
        AttentionProblem problem = largest;
        problem.sequences = sequences;
        problem.rows = rows;
        problem.context = context;
        if (rows >= sequences && context * sequences >= rows) all.push_back(problem.bucketed());
      }
    }
  }
  return all;
}

}  // namespace millrace
