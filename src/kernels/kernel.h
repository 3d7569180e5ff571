// One life cycle for every kernel of every op: can it run, what will it cost, what does it need, run.
//
// An op is a struct with two types: Problem, plain data that says what is asked (it is the key of the plan cache), and
// Args, the pointers of one call. Kernels know no model, no engine and no file.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "hardware/hardware.h"

namespace millrace {

// How close to the reference the result must be.
enum class Precision : unsigned char {
  Fast,   // the number formats of the weights decide: int8 activations for quantized weights and the like
  Exact,  // f32 activations and arithmetic, for conformance
};

// Where and with what a kernel runs. The workspace is as large as the plan asked for, in the memory of the device.
struct Executor {
  ThreadPool* pool = nullptr;
  std::byte* workspace = nullptr;
  void* queue = nullptr;               // of a GPU: the stream to launch on
  const Hardware* hardware = nullptr;  // of a GPU: kernels cut their work to its size
  // Of a GPU: a kernel may start while the one before it drains (programmatic dependent launch). It fetches its
  // weights, then waits before it touches what others write.
  bool overlap = false;
};

// Code that waits so is built for Hopper alone; newer GPUs run that for Ampere.
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
  // Of a kernel that differs from another in what only a measurement can tell: it is tried where that one does best,
  // and chosen where it was measured.
  virtual const Kernel* variant_of(const Problem& problem, const Hardware& hardware) const { return nullptr; }
  // What a timing of it alone does not show: how much longer the step takes for it, as a factor of its own time.
  virtual double burden(const Problem& problem) const { return 1; }
  virtual size_t workspace_bytes(const Problem& problem, const Hardware& hardware) const { return 0; }
  // Whether it can do the small op in front of it as well, which its Args then hold: one launch less.
  virtual bool takes_along(const Problem& problem, const Hardware& hardware) const { return false; }
  // Whether it does half of a small op that it shares with the kernel before or behind it, which both say in their
  // Args: none is launched between the two.
  virtual bool shares_between(const Problem& problem, const Hardware& hardware) const { return false; }
  virtual void run(const Args& args, const Executor& executor) const = 0;  // no allocation, no exception
};

template <class Op>
using KernelList = std::vector<const Kernel<Op>*>;

// The first kernel of a list that can run the problem, for kernels that do the work of another op along with their own.
template <class Op>
const Kernel<Op>& first_that_runs(const KernelList<Op>& kernels, const typename Op::Problem& problem,
                                  const Hardware& hardware) {
  for (const auto* kernel : kernels) {
    if (kernel->can_run(problem, hardware)) return *kernel;
  }
  return *kernels.back();  // the reference runs everything
}

}  // namespace millrace
