#include "kernels/linear/cuda/packed.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "hardware/cuda/check.h"
#include "kernels/cuda/cost.h"
#include "kernels/linear/cuda/launch.h"

namespace millrace {
namespace {

CudaLimits limits_of(const Hardware& h) {
  return {h.cores, h.architecture, h.ceilings.read_gbs * 1e3, h.ceilings.bf16_gflops * 1e3};
}

// The format that a layout for bf16 activations stores quantized weights in.
DType stored_format(DType format) { return is_quantized(format) ? packed_linear_format(format, DType::BF16) : format; }

// One layout per type of activations: plain weights are converted to that type, quantized ones keep their bits, except
// FP8, which is rounded to Q8_0.
class PackedLayout final : public LinearLayout {
 public:
  PackedLayout(std::string_view name, DType x) : name_(name), x_(x) {}
  std::string_view name() const override { return name_; }
  DType x() const { return x_; }

  bool accepts(DType format, int64_t, int64_t, const Hardware& hardware) const override {
    if (!is_gpu(hardware)) return false;
    return is_quantized(format) ? x_ == DType::BF16 && is_quantized(stored_format(format)) : format == x_;
  }
  size_t bytes(DType format, int64_t n, int64_t k) const override {
    return packed_linear_bytes(stored_format(format), n, k);
  }
  bool keeps_rows(DType format) const override { return !is_quantized(format); }
  DType stored(DType format) const override { return stored_format(format); }
  void pack(std::span<const WeightView>, std::byte*, ThreadPool&) const override {
    MR_ASSERT(!"this layout is a GPU's");
  }

  int64_t gate_group() const override { return kGateUpGroup; }
  void upload_gated(const WeightView& gate, const WeightView& up, std::byte* out, Uploader& uploader,
                    ThreadPool& pool) const override {
    clear(out, bytes(gate.dtype, 2 * gate.rows, gate.cols), uploader);
    pack_part(gate, {0, 2 * kGateUpGroup}, 2 * gate.rows, out, uploader, pool);
    pack_part(up, {kGateUpGroup, 2 * kGateUpGroup}, 2 * gate.rows, out, uploader, pool);
  }

  void upload(std::span<const WeightView> parts, std::byte* out, Uploader& uploader, ThreadPool& pool) const override {
    const DType format = parts.front().dtype;
    const int64_t k = parts.front().cols;
    int64_t n = 0, first = 0;
    for (const auto& part : parts) n += part.rows;
    const bool same_bytes = !is_quantized(format) && packed_linear_stride(k) == k;
    if (!same_bytes) clear(out, bytes(format, n, k), uploader);
    for (const auto& part : parts) {
      if (same_bytes) {
        upload_bytes(part.data, out + static_cast<size_t>(first) * row_bytes(format, k), part.bytes(), uploader, pool);
      } else {
        pack_part(part, {first, kGateUpGroup}, n, out, uploader, pool);
      }
      first += part.rows;
    }
  }

 private:
  static void clear(std::byte* out, size_t bytes, Uploader& uploader) {
    const auto stream = static_cast<cudaStream_t>(uploader.queue());
    check_cuda(cudaMemsetAsync(out, 0, bytes, stream), "packing weights");
  }

  // Packs as many rows at a time as one slot of the uploader holds.
  static void pack_part(const WeightView& part, RowPlacement place, int64_t n, std::byte* out, Uploader& uploader,
                        ThreadPool& pool) {
    const size_t row = row_bytes(part.dtype, part.cols);
    const int64_t at_once =
        std::max<int64_t>(1, static_cast<int64_t>(uploader.slot_bytes() / row) / kGateUpGroup * kGateUpGroup);
    for (int64_t done = 0; done < part.rows; done += at_once) {
      const int64_t rows = std::min(at_once, part.rows - done);
      fill_slot(uploader.slot(), part.row(done), static_cast<size_t>(rows) * row, pool);
      uploader.send(uploader.scratch(), static_cast<size_t>(rows) * row);
      check_cuda(pack_linear(part.dtype, uploader.scratch(), rows, stored_format(part.dtype), n, part.cols, place, out,
                             static_cast<cudaStream_t>(uploader.queue())),
                 "packing weights");
      place.first += rows / kGateUpGroup * place.step;
    }
  }

  std::string_view name_;
  DType x_;
};

std::span<const PackedLayout> layouts() {
  static const std::array<PackedLayout, 2> all{PackedLayout("cuda_bf16", DType::BF16),
                                               PackedLayout("cuda_f16", DType::F16)};
  return all;
}

class PackedKernel final : public LinearKernel {
 public:
  explicit PackedKernel(const CudaLinearKernel& launch) : launch_(launch), name_("cuda_" + std::string(launch.name)) {}
  std::string_view name() const override { return name_; }

  bool can_run(const Problem& p, const Hardware& hardware) const override {
    if (!is_gpu(hardware) || p.precision == Precision::Exact || cuda_packed_type(p.layout) != p.x || p.x == DType::F32)
      return false;
    return launch_.can_run(problem(p, p.x), limits_of(hardware)) &&
           launch_.can_run(problem(p, DType::F32), limits_of(hardware));
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return launch_.estimate_us(problem(p, p.x), limits_of(hardware));
  }
  bool takes_along(const Problem& p, const Hardware& hardware) const override {
    return launch_.takes_norm != nullptr && can_run(p, hardware) &&
           launch_.takes_norm(problem(p, p.x), limits_of(hardware));
  }
  bool shares_between(const Problem& p, const Hardware& hardware) const override {
    return launch_.splits_norm != nullptr && can_run(p, hardware) &&
           launch_.splits_norm(problem(p, p.x), limits_of(hardware));
  }
  void run(const Args& a, const Executor& executor) const override {
    const LinearWeights& w = *a.weights;
    const DType x = a.norm != nullptr ? cuda_packed_type(w.layout->name()) : a.x.dtype;
    const CudaLinearProblem p{stored_format(w.format), x, a.y.dtype, w.n, w.k, a.x.rows, a.accumulate, a.gated};
    static_assert(NormAhead::kPart == kNormPart);
    const CudaLinearArgs args{a.x.data,  a.x.stride,
                              w.data,    a.bias,
                              a.y.data,  a.y.stride,
                              nullptr,   a.norm,
                              a.epsilon, {a.ahead.weights, a.ahead.scaled.data, a.ahead.scaled.stride, a.ahead.squares},
                              a.squares};
    check_cuda(launch_.run(p, args, limits_of(*executor.hardware),
                           {static_cast<cudaStream_t>(executor.queue), executor.overlap}),
               "starting a linear layer");
  }

 private:
  static CudaLinearProblem problem(const Problem& p, DType y) {
    return {stored_format(p.format), p.x, y, p.n, p.k, p.m, /*accumulate=*/false, p.gated};
  }
  const CudaLinearKernel& launch_;
  std::string name_;
};

}  // namespace

DType cuda_packed_type(std::string_view name) {
  for (const auto& layout : layouts()) {
    if (layout.name() == name) return layout.x();
  }
  return DType::F32;
}

void cuda_unpack(const LinearWeights& w, void* to, void* queue) {
  check_cuda(unpack_linear(stored_format(w.format), w.data, w.n, w.k, 0, w.n, to, static_cast<cudaStream_t>(queue)),
             "unpacking weights");
}

std::vector<const LinearLayout*> cuda_packed_layouts() {
  std::vector<const LinearLayout*> all;
  for (const auto& layout : layouts()) all.push_back(&layout);
  return all;
}

KernelList<LinearOp> cuda_packed_kernels() {
  static const std::vector<PackedKernel> kernels(cuda_linear_kernels().begin(), cuda_linear_kernels().end());
  KernelList<LinearOp> all;
  for (const auto& kernel : kernels) all.push_back(&kernel);
  return all;
}

}  // namespace millrace
