// Prompt kernels of linear layers are at least as close to the exact product as llama.cpp's scheme: weights as in the
// file, x rounded to int8 with one scale per 32 elements for quantized weights, to f16 or bf16 for plain ones.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/thread_pool.h"
#include "fresh_seed.h"
#include "hardware/detect.h"
#include "kernels/kernel_set.h"
#include "linear_cases.h"
#include "support.h"
#include "tensor/arena.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

constexpr int64_t kOutputs = 72, kDepth = 1024, kPrompt = 40;

// Heavy tails, and a few channels that are large in every row, as behind the norms of language models.
std::vector<float> heavy_tailed(int64_t m, int64_t k, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t(m * k)), channel(static_cast<size_t>(k), 1.0f);
  for (int64_t i = 0; i < k / 64; ++i) channel[rng() % channel.size()] = 30;
  for (size_t i = 0; i < x.size(); ++i) x[i] = channel[i % channel.size()] * normal(rng) * std::exp(normal(rng) / 2);
  return x;
}

void round_to_q8_0(float* x) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[i]));
  const float step = largest / 127, inverse = step > 0 ? 1 / step : 0, stored = f16_to_f32(f32_to_f16(step));
  for (int i = 0; i < 32; ++i) x[i] = stored * std::round(x[i] * inverse);
}

std::vector<float> as_llama_cpp_rounds(DType format, std::vector<float> x) {
  for (size_t i = 0; i < x.size() && is_quantized(format); i += 32) round_to_q8_0(&x[i]);
  if (format == DType::F16) {
    for (float& value : x) value = f16_to_f32(f32_to_f16(value));
  }
  if (format == DType::BF16) {
    for (float& value : x) value = bf16_to_f32(f32_to_bf16(value));
  }
  return x;
}

std::vector<double> product(const std::vector<float>& x, const std::vector<float>& w) {
  std::vector<double> y;
  for (int64_t i = 0; i < kPrompt; ++i) {
    for (int64_t j = 0; j < kOutputs; ++j) y.push_back(dot(&x[size_t(i * kDepth)], &w[size_t(j * kDepth)], kDepth));
  }
  return y;
}

template <class Number>
double distance(const std::vector<Number>& y, const std::vector<double>& exact) {
  double squares = 0;
  for (size_t i = 0; i < y.size(); ++i) squares += (y[i] - exact[i]) * (y[i] - exact[i]);
  return std::sqrt(squares);
}

class LinearAccuracy : public testing::TestWithParam<DType> {
 protected:
  std::vector<float> run(const LinearKernel& kernel, const LinearLayout& layout, const LinearProblem& problem,
                         const WeightView& rows, const Hardware& hardware) {
    Arena memory("test", Arena::padded(layout.bytes(rows.dtype, kOutputs, kDepth)) +
                             Arena::padded(kernel.workspace_bytes(problem, hardware)) + 256);
    LinearWeights weights{rows.dtype, kOutputs, kDepth, &layout, rows.data};
    if (!layout.in_place(rows.dtype, kOutputs, kDepth)) {
      std::byte* packed = memory.take(layout.bytes(rows.dtype, kOutputs, kDepth));
      layout.pack({&rows, 1}, packed, pool_);
      weights.data = packed;
    }
    std::vector<float> y(size_t(kPrompt * kOutputs));
    LinearArgs args;
    args.x = {DType::F32, kPrompt, kDepth, kDepth, reinterpret_cast<std::byte*>(x_.data())};
    args.y = {DType::F32, kPrompt, kOutputs, kOutputs, reinterpret_cast<std::byte*>(y.data())};
    args.weights = &weights;
    kernel.run(args, {&pool_, memory.take(kernel.workspace_bytes(problem, hardware)), nullptr, &hardware});
    return y;
  }

  ThreadPool pool_{1};
  std::vector<float> x_;
};

TEST_P(LinearAccuracy, PromptsAreAsExactAsWithTheScalesOfTheFile) {
  const DType format = GetParam();
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  const auto bytes = random_weights(format, kOutputs, kDepth, rng);
  std::vector<float> w(size_t(kOutputs * kDepth));
  for (int64_t j = 0; j < kOutputs; ++j)
    dequantize_row(format, bytes.data() + size_t(j) * row_bytes(format, kDepth), &w[size_t(j * kDepth)], kDepth);
  x_ = heavy_tailed(kPrompt, kDepth, rng);
  const auto exact = product(x_, w);
  const double allowed = distance(product(as_llama_cpp_rounds(format, x_), w), exact);
  double size = 0;
  for (const double y : exact) size += y * y;
  int checked = 0;
  for (const auto& level : isa_levels()) {
    const Hardware hardware = detect_cpu(1, level.allowed);
    for (const auto* layout : LinearOp::cpu_layouts()) {
      if (!layout->accepts(format, kOutputs, kDepth, hardware)) continue;
      const LinearProblem problem =
          LinearProblem{format, layout->name(), Precision::Fast, kOutputs, kDepth, kPrompt}.bucketed();
      for (const auto* kernel : LinearOp::cpu()) {
        if (!kernel->can_run(problem, hardware)) continue;
        SCOPED_TRACE(std::string(level.name) + ", " + std::string(kernel->name()));
        const auto y = run(*kernel, *layout, problem, {format, kOutputs, kDepth, bytes.data()}, hardware);
        // The last term: sums in f32. A kernel of the same scheme may round ties of x and the scales another way.
        EXPECT_LE(distance(y, exact), 1.01 * allowed + 1e-6 * std::sqrt(size));
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, LinearAccuracy, testing::ValuesIn([] {
                           std::vector<DType> all;
                           for (const auto& type : all_dtypes()) {
                             // llama.cpp has no FP8 with block scales.
                             if (type.dtype != DType::F8_E4M3) all.push_back(type.dtype);
                           }
                           return all;
                         }()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace millrace
