// CUDA attention over latent rows (MLA) alone, bf16: microseconds of every kernel, TB/s of latent rows, TFLOP/s. Then
// prompts in the materialised form, all of its steps, with the estimates of both forms. Absorbed prompts have two
// grouped linear layers beside their attention.
//
//   latent [NAME]   only kernels whose names start with NAME
#include <cstring>
#include <string_view>

#include "harness.cuh"
#include "kernels/attention/attention.h"
#include "kernels/kernel_set.h"
#include "kernels/latent_prompt/latent_prompt.h"

namespace millrace::bench {
namespace {

constexpr int kKey = 576, kValue = 512, kPage = 64;
constexpr int kPlain = 128, kRotary = 64, kHeadValue = 128;

struct Shape {
  int heads, sequences, rows, context;
};
constexpr Shape kShapes[] = {{16, 1, 1, 1024},    {16, 1, 1, 4096},     {16, 1, 1, 32768},   {16, 8, 1, 1024},
                             {16, 32, 1, 1024},   {16, 64, 1, 1024},    {16, 64, 1, 4096},   {16, 48, 1, 4096},
                             {128, 1, 1, 4096},   {128, 8, 1, 4096},    {128, 64, 1, 4096},  {16, 1, 512, 1536},
                             {16, 1, 2048, 2048}, {16, 8, 4, 1024},     {128, 1, 512, 512},  {16, 1, 512, 8192},
                             {16, 1, 2048, 8192}, {16, 1, 2048, 32768}, {16, 1, 8192, 8192}, {128, 1, 2048, 8192}};

class Layers {
 public:
  explicit Layers(const Shape& s) : shape_(s), pages_each_((s.context + kPage - 1) / kPage) {
    const int64_t pages = int64_t{pages_each_} * s.sequences, elements = pages * kPage * kKey;
    layers_ = static_cast<int>(std::clamp<int64_t>((int64_t{1} << 29) / (elements * 2), 1, 20));
    kv_ = Buffer(static_cast<size_t>(elements * 2 * layers_));
    fill_random(kv_.data(), DType::BF16, elements * layers_, 1);
    const int64_t rows = int64_t{s.sequences} * s.rows;
    q_ = Buffer(static_cast<size_t>(rows * s.heads * kKey * 2));
    out_ = Buffer(static_cast<size_t>(rows * s.heads * kValue * 2));
    fill_random(q_.data(), DType::BF16, rows * s.heads * kKey, 2);
    std::vector<int32_t> table(static_cast<size_t>(pages));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i * 7919 % table.size());
    if (table.size() % 7919 == 0) std::abort();  // the pages would not be distinct
    tables_ = Buffer(table);
    for (int i = 0; i < s.sequences; ++i) {
      device_slices_.push_back({i * s.rows, s.rows, s.context - s.rows, s.context});
      slices_.push_back({.first_row = i * s.rows, .rows = s.rows, .past = s.context - s.rows});
    }
    slices_buffer_ = Buffer(device_slices_);
  }

  AttentionArgs args(int launch) {
    const Shape& s = shape_;
    AttentionArgs a;
    const int64_t rows = int64_t{s.sequences} * s.rows;
    a.q = {DType::BF16, rows, s.heads * kKey, s.heads * kKey, q_.as<std::byte>()};
    a.out = {DType::BF16, rows, s.heads * kValue, s.heads * kValue, out_.as<std::byte>()};
    a.kv = {DType::BF16, 1, kKey, kValue, kPage};
    a.kv.latent = true;
    a.kv.keys = a.kv.values =
        kv_.as<std::byte>() + launch % layers_ * (int64_t{pages_each_} * s.sequences * kPage * kKey * 2);
    a.sequences = slices_;
    a.heads = s.heads;
    a.scale = 0.05f;
    a.tables.slices = slices_buffer_.as<SliceTables::Slice>();
    a.tables.pages = tables_.as<int32_t>();
    a.tables.page_stride = pages_each_;
    a.tables.longest_slice = s.rows;
    return a;
  }

 private:
  Shape shape_;
  int pages_each_, layers_ = 1;
  Buffer kv_, q_, out_, tables_, slices_buffer_;
  std::vector<SliceTables::Slice> device_slices_;
  std::vector<SequenceSlice> slices_;
};

Hardware h200() {
  Hardware hardware;
  hardware.device = DeviceKind::Cuda;
  hardware.architecture = 90;
  hardware.cores = 132;
  hardware.ceilings.read_gbs = 4400;
  hardware.ceilings.bf16_gflops = 750e3;
  return hardware;
}

// A matrix for each head in the layout of bf16 weights: keys [latent, plain], values [value, latent].
class Heads {
 public:
  Heads(int heads, int64_t n, int64_t k) : bytes_(static_cast<size_t>(heads * n * k * 2)) {
    fill_random(bytes_.data(), DType::BF16, heads * n * k, 3);
    const auto each = static_cast<size_t>(n * k * 2);
    for (int i = 0; i < heads; ++i) data_.push_back(bytes_.as<std::byte>() + static_cast<size_t>(i) * each);
    weights_ = {DType::BF16, heads, n, k, cuda_kernels().layouts.front(), data_, each};
  }
  const GroupedWeights* weights() const { return &weights_; }

 private:
  Buffer bytes_;
  std::vector<const std::byte*> data_;
  GroupedWeights weights_;
};

void time_materialised(const Shape& s, Layers& layers) {
  const Hardware hardware = h200();
  const auto& kernel = *LatentPromptOp::cuda().front();
  LatentPromptOp::Problem problem{DType::BF16, Precision::Fast, s.heads, kPlain, kRotary, kHeadValue, kValue, kPage};
  problem.rows = s.rows;
  problem.context = s.context;
  if (!kernel.can_run(problem, hardware)) return;
  const Heads keys(s.heads, kValue, kPlain), values(s.heads, kHeadValue, kValue);
  const int64_t width = int64_t{s.heads} * kPlain;
  const Buffer plain(static_cast<size_t>(s.rows * width * 2));
  fill_random(plain.data(), DType::BF16, s.rows * width, 4);
  Buffer workspace(kernel.workspace_bytes(problem.bucketed(), hardware));
  for (const bool overlap : {false, true}) {
    const double us = time_in_graph(20, [&](CudaStream stream, int i) {
      LatentPromptOp::Args args{.attention = layers.args(i)};
      args.attention.out.cols = args.attention.out.stride = int64_t{s.heads} * kHeadValue;
      args.plain = {DType::BF16, s.rows, width, width, plain.as<std::byte>()};
      args.plain_stride = args.plain_dim = kPlain;
      args.value_dim = kHeadValue;
      args.keys = keys.weights();
      args.values = values.weights();
      kernel.run(args, {nullptr, workspace.as<std::byte>(), stream, &hardware, overlap});
    });
    std::printf("%4d heads %3d x %4d rows context %5d  %-22s %s %8.1f us, expected %.1f, absorbed %.1f\n", s.heads,
                s.sequences, s.rows, s.context, std::string(kernel.name()).c_str(), overlap ? "overlap" : "alone  ", us,
                kernel.estimate_us(problem, hardware), LatentPromptOp::cuda().back()->estimate_us(problem, hardware));
  }
}

void time_shape(const Shape& s, std::string_view prefix) {
  const Hardware hardware = h200();
  Layers layers(s);
  const AttentionProblem problem = problem_of(layers.args(0)).bucketed();
  const double seen = double(s.context) - (s.rows - 1) / 2.0;
  const double bytes = double(s.sequences) * s.context * kKey * 2;
  const double flops = 2.0 * s.sequences * s.rows * seen * s.heads * (kKey + kValue);
  for (const AttentionKernel* kernel : AttentionOp::cuda()) {
    if (!kernel->name().starts_with(prefix) || !kernel->can_run(problem, hardware)) continue;
    Buffer workspace(kernel->workspace_bytes(problem, hardware));
    if (workspace.bytes() > 0) workspace.fill(0);
    for (const bool overlap : {false, true}) {
      const double us = time_in_graph(20, [&](CudaStream stream, int i) {
        kernel->run(layers.args(i), {nullptr, workspace.as<std::byte>(), stream, &hardware, overlap});
      });
      std::printf("%4d heads %3d x %4d rows context %5d  %-22s %s %8.1f us %6.2f TB/s %6.0f TFLOP/s\n", s.heads,
                  s.sequences, s.rows, s.context, std::string(kernel->name()).c_str(), overlap ? "overlap" : "alone  ",
                  us, bytes / us * 1e-6, flops / us * 1e-6);
    }
  }
  if (s.sequences == 1 && s.rows > 1) time_materialised(s, layers);
}

}  // namespace
}  // namespace millrace::bench

int main(int count, char** arguments) {
  for (const auto& shape : millrace::bench::kShapes)
    millrace::bench::time_shape(shape, count > 1 ? arguments[1] : "cuda_latent");
}
