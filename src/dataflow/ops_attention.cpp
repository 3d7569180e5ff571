// Attention: kernels by the number of sequences and rows and by the longest context.
#include <algorithm>

#include "dataflow/buckets.h"
#include "dataflow/ops_watch.h"

namespace millrace {

// Where results may not depend on the batch, its size may not decide on the kernel.
AttentionProblem Ops::pinned(AttentionProblem problem) const {
  if (options_.batch_invariant) problem.sequences = problem.rows = problem.context = 1;
  problem.invariant = options_.batch_invariant;
  return problem.bucketed();
}

void Ops::plan(const AttentionProblem& largest) {
  for (auto problem : attention_buckets(largest)) {
    problem.invariant = options_.batch_invariant;
    const auto* kernel = attention_.choose(pinned(problem));
    if (kernel == nullptr) {
      fail(ErrorKind::Unsupported, "no attention kernel for head size {} with a {} KV cache; try --kv-type f16",
           largest.head_dim, name(largest.kv));
    }
    attention_workspace_needed_ = std::max(attention_workspace_needed_, kernel->workspace_bytes(problem, hardware_));
  }
}

AttentionProblem Ops::problem_of(const AttentionArgs& a) const {
  AttentionProblem problem = millrace::problem_of(a);
  problem.precision = options_.precision;
  problem.invariant = options_.batch_invariant;
  return problem;
}

// On a GPU decodes (with or without drafts) and prompts are different problems with different kernels; batches bring
// the decodes first.
void Ops::attention(const AttentionArgs& args) {
  const auto is_prompt = [](const SequenceSlice& slice) { return slice.rows > 1 && !slice.drafts; };
  const auto first_prompt = std::find_if(args.sequences.begin(), args.sequences.end(), is_prompt);
  const auto decodes = static_cast<size_t>(first_prompt - args.sequences.begin());
  if (device_.is_host() || decodes == 0 || decodes == args.sequences.size()) return attend(args);
  AttentionArgs part = args;
  part.sequences = args.sequences.first(decodes);
  part.tables.longest_slice = 1;
  for (const SequenceSlice& slice : part.sequences)
    part.tables.longest_slice = std::max(part.tables.longest_slice, slice.rows);
  attend(part);
  part.sequences = args.sequences.subspan(decodes);
  part.tables.longest_slice = args.tables.longest_slice;
  part.tables.slices += decodes;
  part.tables.pages += static_cast<int64_t>(decodes) * args.tables.page_stride;
  attend(part);
}

void Ops::attention(const RopeWriteOp::Args& rope, const AttentionArgs& args) {
  const AttentionProblem problem = problem_of(args);
  const bool turns_all = rope.angles.cols == 0 || rope.angles.cols == args.kv.head_dim;
  const bool decodes = problem.rows == problem.sequences;  // one row each
  // A prompt's rows are turned by a kernel of their own, with another rounding.
  const bool apart = device_.is_host() || options_.batch_invariant || !decodes || !turns_all;
  if (apart || !planned(problem)->takes_along(problem, hardware_)) {
    rope_write(rope);
    return attention(args);
  }
  AttentionArgs all = args;
  all.fresh = {rope.k, rope.v, rope.angles, rope.style};
  attend(all);
}

const AttentionKernel* Ops::planned(const AttentionProblem& problem) {
  const AttentionKernel* kernel = attention_.choose(pinned(problem));
  MR_ASSERT(kernel != nullptr);
  return kernel;
}

void Ops::attend(const AttentionArgs& args) {
  const AttentionProblem problem = problem_of(args);
  AttentionArgs invariant = args;
  invariant.invariant = options_.batch_invariant;
  const AttentionKernel* kernel = planned(problem);
  if (times_ == nullptr) return kernel->run(invariant, attention_executor_);
  run_watched(attention_, *kernel, problem, invariant, attention_executor_);
}

}  // namespace millrace
