// Rounds row counts and context lengths up to a few sizes. Problems of one bucket share a plan.
#pragma once

#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"

namespace millrace {

// All buckets of 1 to `rows` rows, ascending.
std::vector<int64_t> row_buckets(int64_t rows);

// All bucketed attention problems of steps up to this size.
std::vector<AttentionProblem> attention_buckets(const AttentionProblem& largest);

}  // namespace millrace
