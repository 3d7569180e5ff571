// Attention: kernels are planned by number of sequences, number of rows and longest context.
#include <algorithm>
#include <bit>

#include "dataflow/buckets.h"
#include "dataflow/ops.h"

namespace millrace {

// Batch-invariant kernels must not be chosen by batch size.
AttentionProblem Ops::pinned(AttentionProblem problem) const {
  if (options_.batch_invariant) problem.sequences = problem.rows = problem.context = 1;
  problem.invariant = options_.batch_invariant;
  return problem.bucketed();
}

// Plans every bucket of batches within the limits when a dry pass first meets this attention problem.
void Ops::plan_attention(const AttentionProblem& problem) {
  AttentionProblem open = problem;
  open.sequences = open.rows = open.context = 0;
  if (std::find(attentions_.begin(), attentions_.end(), open) != attentions_.end()) return;
  attentions_.push_back(open);
  AttentionProblem largest = open;
  largest.sequences = limits_.sequences;
  largest.rows = limits_.rows;
  largest.context = limits_.context;
  for (const auto& bucket : attention_buckets(largest)) {
    const auto* kernel = planner<AttentionOp>().plan(pinned(bucket));
    if (kernel == nullptr) {
      fail(ErrorKind::Unsupported, "no attention kernel for head size {} with a {} KV cache; try --kv-type f16",
           open.key_dim, name(open.kv));
    }
    attention_workspace_needed_ = std::max(attention_workspace_needed_, kernel->workspace_bytes(bucket, hardware_));
  }
}

AttentionProblem Ops::problem_of(const AttentionArgs& a) const {
  AttentionProblem problem = millrace::problem_of(a);
  problem.precision = options_.precision;
  problem.invariant = options_.batch_invariant;
  return problem;
}

// On a GPU decode (with or without drafts) and prefill use different kernels, so a mixed batch is split. Decodes come
// first.
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
  if (part.tables.slots != nullptr) part.tables.slots += decodes;
  part.tables.pages += static_cast<int64_t>(decodes) * args.tables.page_stride;
  attend(part);
}

// In one launch if k lies behind q.
void Ops::norm_heads(const RopeWriteOp::Args& rope, const HeadNorms& norms) {
  if (norms.q == nullptr) return;
  NormOp::Args q{NormKind::Rms, rope.q, rope.q, norms.q, nullptr, norms.epsilon, rope.heads}, k = q;
  k.x = k.out = rope.k;
  k.weight = norms.k;
  k.groups = rope.kv.kv_heads;
  if (rope.k.data != rope.q.columns(rope.q.cols, 0).data || rope.k.stride != rope.q.stride) {
    norm(q);
    return norm(k);
  }
  q.x.cols += rope.k.cols;
  q.out = q.x;
  q.groups += k.groups;
  q.second_weight = norms.k;
  q.second_from = rope.heads;
  norm(q);
}

void Ops::attention(const RopeWriteOp::Args& rope, const AttentionArgs& args, const HeadNorms& norms) {
  launch_pending();
  const AttentionProblem problem = problem_of(args);
  const auto prepare = [&] {
    norm_heads(rope, norms);
    rope_write(rope);
  };
  if (mode_ == Mode::Plan) {
    plan_attention(problem);
    return prepare();  // batches of other shapes need separate kernels
  }
  const bool rotates_all = rope.angles.cols == 0 || rope.angles.cols == args.kv.key_dim;
  const bool decodes = problem.rows == problem.sequences;  // one row per sequence
  // These kernels round differently from the fused one, so prefill and batch-invariant passes do not fuse.
  const bool apart = device_.is_host() || options_.batch_invariant || !decodes || !rotates_all;
  if (apart || !planned(problem)->takes_along(problem, hardware_)) {
    prepare();
    return attention(args);
  }
  AttentionArgs all = args;
  all.fresh = {rope.k, rope.v, rope.angles, rope.style, {}};
  if (std::has_single_bit(static_cast<unsigned>(problem.key_dim))) {
    all.fresh.norms = norms;
  } else {
    norm_heads(rope, norms);
  }
  attend(all);
}

const AttentionKernel* Ops::planned(const AttentionProblem& problem) {
  const AttentionProblem key = pinned(problem);
  const AttentionKernel* kernel = is_dry() ? planner<AttentionOp>().plan(key) : planner<AttentionOp>().planned(key);
  MR_ASSERT(kernel != nullptr);
  return kernel;
}

void Ops::attend(const AttentionArgs& args) {
  launch_pending();
  const AttentionProblem problem = problem_of(args);
  if (mode_ == Mode::Plan) return plan_attention(problem);
  AttentionArgs invariant = args;
  invariant.invariant = options_.batch_invariant;
  run<AttentionOp>(*planned(problem), problem, invariant, attention_executor_);
}

}  // namespace millrace
