// The life cycle that kernels of all ops share: can_run, estimate_us, workspace_bytes, run.
//
// An op is a struct with two types. Problem is plain data that describes the work; the plan cache uses it as its key.
// Args holds the pointers of one call. Kernels know no model, no engine and no file.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "hardware/hardware.h"

namespace millrace {

class ThreadPool;

// Required accuracy of the result.
enum class Precision : unsigned char {
  Fast,   // the format of the weights decides, e.g. int8 activations for quantized weights
  Exact,  // f32 activations and arithmetic, for conformance
};

// Resources for one kernel call. `workspace` lies in the device's memory and has the planned size.
struct Executor {
  ThreadPool* pool = nullptr;
  std::byte* workspace = nullptr;
  void* queue = nullptr;               // GPU only: the stream to launch on
  const Hardware* hardware = nullptr;  // GPU only: kernels size their grids for it
  // GPU only: the kernel may start while its predecessor drains (programmatic dependent launch). It prefetches weights,
  // then waits before it touches data that other kernels write.
  bool overlap = false;
};

// Kernels with that wait are compiled for Hopper only; newer GPUs run the code for Ampere.
inline bool starts_early(const Hardware& hardware) { return hardware.architecture == 90; }

template <class Op>
class Kernel {
 public:
  using Problem = typename Op::Problem;
  using Args = typename Op::Args;

  virtual ~Kernel() = default;
  virtual std::string_view name() const = 0;
  virtual bool can_run(const Problem& problem, const Hardware& hardware) const = 0;
  virtual double estimate_us(const Problem& problem, const Hardware& hardware) const = 0;
  // Kernels whose ranking needs a measurement: a variant is timed where its base kernel ranks first, and chosen only if
  // it was measured faster. Null: the kernel is ranked by its own estimate.
  virtual const Kernel* variant_of(const Problem& problem, const Hardware& hardware) const { return nullptr; }
  // Slowdown of the whole step that an isolated timing misses, as a factor on the kernel's own time.
  virtual double burden(const Problem& problem) const { return 1; }
  virtual size_t workspace_bytes(const Problem& problem, const Hardware& hardware) const { return 0; }
  // Whether the kernel can also compute the small op in front of it (described in Args), which saves a launch.
  virtual bool takes_along(const Problem& problem, const Hardware& hardware) const { return false; }
  // Whether the kernel computes half of a small op that lies between it and a neighbouring kernel (described in both
  // Args), so that no kernel is launched between the two.
  virtual bool shares_between(const Problem& problem, const Hardware& hardware) const { return false; }
  virtual void run(const Args& args, const Executor& executor) const = 0;  // never allocates, never throws
};

template <class Op>
using KernelList = std::vector<const Kernel<Op>*>;

// The first kernel of a list that can run the problem, for kernels that also do the work of another op.
template <class Op>
const Kernel<Op>& first_that_runs(const KernelList<Op>& kernels, const typename Op::Problem& problem,
                                  const Hardware& hardware) {
  for (const auto* kernel : kernels) {
    if (kernel->can_run(problem, hardware)) return *kernel;
  }
  return *kernels.back();  // the reference runs everything
}

}  // namespace millrace
