// y = x W^T (+ bias) (+ y): the op that takes nearly all of the time.
//
// A weight matrix is held once, in the layout of one kernel family; GEMV, flat and full kernels compete among those
// that read that layout.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hardware/device.h"
#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

// How a kernel family wants a weight matrix in memory.
class LinearLayout {
 public:
  virtual ~LinearLayout() = default;
  virtual std::string_view name() const = 0;
  virtual bool accepts(DType format, int64_t n, int64_t k, const Hardware& hardware) const = 0;
  // Packed size; 0 means that the file's own rows are read in place.
  virtual size_t bytes(DType format, int64_t n, int64_t k) const = 0;
  // Packs matrices of one format and width, stacked along n (q, k and v become one), into `out`.
  virtual void pack(std::span<const WeightView> parts, std::byte* out, ThreadPool& pool) const = 0;
  // The same into the memory of a GPU, for its layouts.
  virtual void upload(std::span<const WeightView> parts, std::byte* out, Uploader& uploader, ThreadPool& pool) const;
  // Kernels that multiply silu(gate) with up at once want rows of both alternate in groups of this many; 0: there are
  // none.
  virtual int64_t gate_group() const { return 0; }
  virtual void upload_gated(const WeightView& gate, const WeightView& up, std::byte* out, Uploader& uploader,
                            ThreadPool& pool) const;
  // Kernels do the same where the rows of up lie behind those of gate, if each has a multiple of this many; 0: none.
  virtual int64_t gate_multiple() const { return 0; }
  virtual bool keeps_rows(DType format) const { return false; }  // the packed bytes are the file's, row after row
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
  DType x = DType::F32;  // of the activations that come in
  bool gated = false;    // y = silu(gate) * up: [m, n / 2]

  friend bool operator==(const LinearProblem&, const LinearProblem&) = default;
  LinearProblem bucketed() const;  // m rounded to the bucket that shares one plan
};
std::string to_string(const LinearProblem& problem);

// The first half of an RMS norm of y, for kernels that share one with the layer behind it: y times the weights, and the
// sums of squares of its parts.
struct NormAhead {
  static constexpr int64_t kPart = 16;  // columns
  const float* weights = nullptr;       // [n]; null: no such norm follows
  Matrix scaled;                        // [m, n]
  float* squares = nullptr;             // [m][n / kPart]
};

struct LinearArgs {
  Matrix x;  // [m, k]
  const LinearWeights* weights = nullptr;
  const float* bias = nullptr;  // [n] or null
  Matrix y;                     // [m, n], or [m, n / 2] where gated
  bool accumulate = false;      // y += rather than y =
  bool gated = false;           // the weights are gate and up, y = silu(gate) * up
  bool invariant = false;       // no row of y may depend on the other rows of x
  // [k] or null: x is the residual stream in f32, and its RMS norm with these weights comes first. For kernels that
  // take it along; `normed` is room for it, [m, k], which they may leave alone.
  const float* norm = nullptr;
  float epsilon = 0;
  Matrix normed;
  NormAhead ahead;
  // [m][k / kPart] or null: x is what the layer before scaled, and y is divided by the root of the mean square.
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

// m of the bucket: 1..8 each, then in steps of about a third.
int64_t bucket_rows(int64_t m);

}  // namespace millrace
