// Which problems share a plan: rows and contexts are rounded up to a few sizes.
#pragma once

#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"

namespace millrace {

// Every bucket that up to `rows` rows can fall into, ascending.
std::vector<int64_t> row_buckets(int64_t rows);

// Every bucketed problem that a step of at most this size can pose.
std::vector<AttentionProblem> attention_buckets(const AttentionProblem& largest);

}  // namespace millrace
