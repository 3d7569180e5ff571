// Common part of all flash attention kernels: splits the batch over threads and merges the tiles that were cut. Kernels
// differ in how they run one piece of a query tile, which a FlashMethod defines.
#pragma once

#include "kernels/attention/workspace.h"

namespace millrace {

using RunPiece = void (*)(const AttentionArgs& args, const AttentionWorkspace& space, const Scratch& scratch,
                          const Piece& piece, Partial& partial);

struct FlashMethod {
  std::string_view name;
  int query_tile;
  bool (*can_run)(const AttentionProblem& problem, const Hardware& hardware);
  double (*gflops)(const AttentionProblem& problem,
                   const Hardware& hardware);  // rate of all threads together on data in cache
  RunPiece (*choose)(DType kv);
  void (*merge)(Partial& into, const Partial& from, int64_t vectors, int64_t stride);
  void (*write_out)(const AttentionArgs& args, const QueryTile& tile, const Partial& partial, int64_t stride);
};

class FlashAttention : public AttentionKernel {
 public:
  explicit FlashAttention(const FlashMethod& method) : method_(method) {}

  std::string_view name() const override { return method_.name; }
  bool can_run(const Problem& problem, const Hardware& hardware) const override;
  double estimate_us(const Problem& problem, const Hardware& hardware) const override;
  size_t workspace_bytes(const Problem& problem, const Hardware& hardware) const override;
  void run(const Args& args, const Executor& executor) const override;

 private:
  void run_chunk(const Args& args, const AttentionSchedule& schedule, const AttentionWorkspace& space,
                 std::byte* memory, int worker, int chunk) const;
  void join(const Args& args, const AttentionSchedule& schedule, const AttentionWorkspace& space,
            const Executor& executor) const;
  void join_tile(const Args& args, const AttentionWorkspace& space, std::byte* memory, int chunk) const;

  const FlashMethod method_;
};

}  // namespace millrace
