// y = x W^T (+ bias) (+ y). Linear layers take nearly all of the time.
//
// A weight matrix is stored once, in the layout of one kernel family. The GEMV, flat and full GEMM kernels that read
// this layout compete for each number of rows m.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hardware/device.h"
#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

// The memory layout of a weight matrix.
class LinearLayout {
 public:
  virtual ~LinearLayout() = default;
  virtual std::string_view name() const = 0;
  virtual bool accepts(DType format, int64_t n, int64_t k, const Hardware& hardware) const = 0;
  // Packed size in bytes; 0 means that kernels read the file's rows in place.
  virtual size_t bytes(DType format, int64_t n, int64_t k) const = 0;
  // Packs matrices of one format and width, stacked along n (e.g. q, k and v), into `out`.
  virtual void pack(std::span<const WeightView> parts, std::byte* out, ThreadPool& pool) const = 0;
  // The same into GPU memory. Only for layouts of GPUs.
  virtual void upload(std::span<const WeightView> parts, std::byte* out, Uploader& uploader, ThreadPool& pool) const;
  // Kernels that compute silu(gate) * up in one pass expect rows of gate and up to alternate in groups of this size; 0:
  // the layout has no such kernels.
  virtual int64_t gate_group() const { return 0; }
  virtual void upload_gated(const WeightView& gate, const WeightView& up, std::byte* out, Uploader& uploader,
                            ThreadPool& pool) const;
  // Kernels of this layout compute silu(gate) * up if all rows of gate precede those of up and each part has a multiple
  // of this many rows; 0: the layout has no such kernels.
  virtual int64_t gate_multiple() const { return 0; }
  virtual bool keeps_rows(DType format) const { return false; }  // the packed bytes equal the file's
  virtual DType stored(DType format) const { return format; }    // the format that kernels read; FP8 may be rounded
  bool in_place(DType format, int64_t n, int64_t k) const { return bytes(format, n, k) == 0; }
};

struct LinearWeights {  // immutable once packed
  DType format = DType::F32;
  int64_t n = 0, k = 0;
  const LinearLayout* layout = nullptr;
  const std::byte* data = nullptr;
};

struct LinearProblem {
  DType format = DType::F32;
  std::string_view layout;  // name of a LinearLayout
  Precision precision = Precision::Fast;
  int64_t n = 0, k = 0, m = 0;
  DType x = DType::F32;  // format of the activations
  bool gated = false;    // y = silu(gate) * up: [m, n / 2]

  friend bool operator==(const LinearProblem&, const LinearProblem&) = default;
  LinearProblem bucketed() const;  // rounds m up to its bucket; a bucket shares one plan
};
std::string to_string(const LinearProblem& problem);

// First half of an RMS norm between two linear layers: the front layer writes y times the norm's weights, and partial
// sums of the squares of y.
struct NormAhead {
  static constexpr int64_t kPart = 16;  // columns per partial sum
  const float* weights = nullptr;       // [n]; null: no norm to share
  Matrix scaled;                        // [m, n]
  float* squares = nullptr;             // [m][n / kPart]
};

struct LinearArgs {
  Matrix x;  // [m, k]
  const LinearWeights* weights = nullptr;
  const float* bias = nullptr;  // [n] or null
  Matrix y;                     // [m, n], or [m, n / 2] if gated
  bool accumulate = false;      // y += instead of y =
  bool gated = false;           // the weights are gate and up: y = silu(gate) * up
  bool invariant = false;       // a row of y may not depend on the other rows of x
  // [k] or null. If set, x is the f32 residual stream, and the kernel first applies an RMS norm with these weights.
  // Only for kernels with takes_along(). `normed` is scratch memory, [m, k], that they may use; those of a GPU for F32
  // weights write the norm to it.
  const float* norm = nullptr;
  float epsilon = 0;
  Matrix normed;
  NormAhead ahead;
  // Second half of a shared norm: [m][k / kPart] or null. If set, x is NormAhead::scaled of the front layer, and the
  // kernel divides y by the root mean square.
  const float* squares = nullptr;
};

struct LinearOp {
  static constexpr std::string_view kName = "linear";
  using Problem = LinearProblem;
  using Args = LinearArgs;

  static std::vector<const LinearLayout*> cpu_layouts(), cuda_layouts();
  static KernelList<LinearOp> cpu();  // best first where estimates tie
  static KernelList<LinearOp> cuda();
  static const Kernel<LinearOp>* reference();  // scalar; every kernel is tested against it
};
using LinearKernel = Kernel<LinearOp>;

// Bucket of m: 1..8 exactly, then steps of about one third.
int64_t bucket_rows(int64_t m);

}  // namespace millrace
