// Every linear kernel of the GPU, in every layout and format, against the exact product.
#include <gtest/gtest.h>

#include <array>

#include "base/thread_pool.h"
#include "cuda/support.h"
#include "fresh_seed.h"
#include "kernels/linear_cases.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

constexpr double kLargestF16 = 65504;

struct Case {
  DType format, x, y;
  int64_t n, k, m;
  bool biased, accumulate;
  float loudness = 1;  // scale of x
};

// x W^T (+ bias) (+ y) in double precision, and the typical size of a row.
struct Expected {
  std::vector<double> y;
  std::vector<double> typical;
};

class Problem {
 public:
  Problem(const Case& c, std::mt19937& random) : case_(c), weights_(random_weights(c.format, c.n, c.k, random)) {
    x_ = random_activations(c.m, c.k, random);
    // Keeps products of a few hundred inputs within f16's range.
    const float largest = c.x == DType::F16 ? 100 : 1e30f;
    for (float& value : x_) value = rounded(std::clamp(value, -largest, largest) * c.loudness, c.x);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < c.n; ++i) bias_.push_back(normal(random));
    for (int64_t i = 0; i < c.n * c.m; ++i) before_.push_back(rounded(normal(random), c.y));
    compute();
  }

  // The norm of each row's error relative to the allowed rounding error: at most 1.
  double run(const LinearKernel& kernel, const LinearLayout& layout, Precision precision, ThreadPool& pool) {
    const Case& c = case_;
    const LinearProblem problem{c.format, layout.name(), precision, c.n, c.k, c.m, c.x};
    const WeightView view{c.format, c.n, c.k, weights_.data()};
    const GpuBytes packed(layout.bytes(c.format, c.n, c.k)), bias(bias_);
    const GpuBytes workspace(kernel.workspace_bytes(problem.bucketed(), gpu().hardware()));
    layout.upload({&view, 1}, packed.data(), gpu_uploader(), pool);
    const LinearWeights weights{c.format, c.n, c.k, &layout, packed.data()};
    TestMatrix x(c.m, c.k), y(c.m, c.n);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.k; ++j) x.at(i, j) = x_[size_t(i * c.k + j)];
      for (int64_t j = 0; j < c.n && c.accumulate; ++j) y.at(i, j) = before_[size_t(i * c.n + j)];
    }
    const GpuCopy gpu_x(x, c.x), gpu_y(y, c.y);
    kernel.run({gpu_x.view(), &weights, c.biased ? bias.as<float>() : nullptr, gpu_y.view(), c.accumulate},
               on_gpu(workspace.data()));
    gpu_y.read(y);
    EXPECT_TRUE(y.spare_is_untouched());
    return worst(y, precision);
  }

 private:
  void compute() {
    const Case& c = case_;
    std::vector<float> row(static_cast<size_t>(c.k));
    expected_.y.resize(size_t(c.m * c.n));
    double w_norm = 0;
    for (int64_t j = 0; j < c.n; ++j) {
      dequantize_row(c.format, weights_.data() + static_cast<size_t>(j) * row_bytes(c.format, c.k), row.data(), c.k);
      w_norm += dot(row.data(), row.data(), c.k);
      for (int64_t i = 0; i < c.m; ++i) {
        const double before = (c.biased ? bias_[size_t(j)] : 0) + (c.accumulate ? before_[size_t(i * c.n + j)] : 0);
        expected_.y[size_t(i * c.n + j)] = before + dot(x_.data() + i * c.k, row.data(), c.k);
      }
    }
    for (int64_t i = 0; i < c.m; ++i) {
      const float* x = x_.data() + i * c.k;
      expected_.typical.push_back(std::sqrt(dot(x, x, c.k) * w_norm));
    }
  }

  double worst(TestMatrix& y, Precision precision) const {
    const Case& c = case_;
    // Fast kernels may round weights to the type of x, and quantize x to int8 for quantized weights.
    const double product = precision == Precision::Exact ? 1e-6
                           : is_quantized(c.format)      ? 2e-2
                                                         : 4 * rounding_of(c.x) + 1e-6;
    double worst = 0;
    for (int64_t i = 0; i < c.m; ++i) {
      double error = 0, size = 0;
      for (int64_t j = 0; j < c.n; ++j) {
        double want = expected_.y[size_t(i * c.n + j)];
        if (c.y == DType::F16) want = std::clamp(want, -kLargestF16, kLargestF16);  // f16 outputs saturate
        error += std::pow(y.at(i, j) - want, 2);
        size += want * want;
      }
      // f16 subnormals (below 2^-14) are 2^-24 apart.
      const double smallest = c.y == DType::F16 ? 0x1p-24 * std::sqrt(double(c.n)) : 1e-30;
      const double allowed =
          product * expected_.typical[size_t(i)] + (rounding_of(c.y) + 1e-6) * std::sqrt(size) + smallest;
      worst = std::max(worst, std::isnan(error) ? 1e30 : std::sqrt(error) / allowed);
    }
    return worst;
  }

  Case case_;
  std::vector<std::byte> weights_;
  std::vector<float> x_, bias_, before_;
  Expected expected_;
};

constexpr int64_t kVariantRows = 8;  // the many variants that need a measurement to rank are checked at this m only

class CudaLinearTest : public testing::TestWithParam<DType> {
 protected:
  // Checks every kernel, or those whose names have this prefix; returns how many ran.
  int check(const Case& c, Precision precision, std::mt19937& random, std::string_view prefix = "") {
    Problem problem(c, random);
    int ran = 0;
    for (const auto* layout : cuda_kernels().layouts) {
      if (!layout->accepts(c.format, c.n, c.k, gpu().hardware())) continue;
      const LinearProblem p{c.format, layout->name(), precision, c.n, c.k, c.m, c.x};
      for (const auto* kernel : cuda_kernels().of<LinearOp>()) {
        if (!kernel->can_run(p.bucketed(), gpu().hardware()) || !kernel->name().starts_with(prefix)) continue;
        if (kernel->variant_of(p, gpu().hardware()) != nullptr && c.m != kVariantRows) continue;
        SCOPED_TRACE(to_string(p) + " y=" + std::string(name(c.y)) + " with " + std::string(kernel->name()));
        EXPECT_GT(kernel->estimate_us(p.bucketed(), gpu().hardware()), 0);
        EXPECT_LE(problem.run(*kernel, *layout, precision, pool_), 1);
        ++ran;
      }
    }
    return ran;
  }
  ThreadPool pool_{4};
};

TEST_P(CudaLinearTest, Exact) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const LinearShape shape : test_shapes(GetParam())) {
    for (const int64_t m : {1, 3, 8, 33}) {
      EXPECT_GT(check({GetParam(), DType::F32, DType::F32, shape.n, shape.k, m, m % 2 == 0, m == 3}, Precision::Exact,
                      random),
                0);
    }
  }
}

TEST_P(CudaLinearTest, Fast) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<LinearShape> shapes = test_shapes(GetParam());
  shapes.push_back({768, 1024});
  shapes.push_back({264, 512});
  for (const LinearShape shape : shapes) {
    for (const int64_t m : kTestRows) {
      for (const DType x : {DType::BF16, DType::F16}) {
        if (!is_quantized(GetParam()) && GetParam() != DType::F32 && GetParam() != x) continue;
        const bool accumulate = m % 3 == 0;
        const DType y = accumulate || m % 2 == 0 ? DType::F32 : x;
        EXPECT_GT(check({GetParam(), x, y, shape.n, shape.k, m, m % 5 == 1, accumulate}, Precision::Fast, random), 0);
      }
    }
  }
}

// More tiles than multiprocessors, and rows so long that blocks share them; neither fills whole tiles. The last shape
// has so many rows that blocks of two heights share them.
TEST_P(CudaLinearTest, ManyAndLongRows) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const DType format = GetParam(), x = format == DType::F16 ? DType::F16 : DType::BF16;
  const int64_t block = info(format).block;
  if (format == DType::F32) GTEST_SKIP() << "a test of kernels for 16-bit and quantized weights";
  for (LinearShape shape : {LinearShape{4328, 264}, {1100, 7304}, {2120, 3592}, {22024, 136}}) {
    shape.k = (shape.k + block - 1) / block * block;
    for (const int64_t m : {1, 2, 3, 4, 8, 13, 48, 96}) {
      const bool accumulate = m % 2 == 0;
      const DType y = accumulate || m == 3 ? DType::F32 : x;
      EXPECT_GT(check({format, x, y, shape.n, shape.k, m, m == 13, accumulate}, Precision::Fast, random), 0);
    }
  }
}

// Little work, for tools that slow it down a thousandfold, but rows long enough for the ring of stages to wrap. Our
// kernels only: under racecheck cuBLASLt's would take most of the time.
TEST_P(CudaLinearTest, FewLongRows) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const DType format = GetParam(), x = format == DType::F16 ? DType::F16 : DType::BF16;
  if (format == DType::F32) GTEST_SKIP() << "a test of kernels for 16-bit and quantized weights";
  for (const auto& [n, k, m] : {std::array<int64_t, 3>{48, 4608, 1},
                                {48, 4608, 2},
                                {48, 4608, 5},
                                {48, 4608, 16},
                                {160, 1280, 1},
                                {160, 1280, 8},
                                {160, 1280, 48},
                                {160, 1280, 64},
                                {160, 1280, 130}}) {
    const bool accumulate = m % 3 == 1;
    const Case c{format, x, accumulate ? DType::F32 : x, n, k, m, m == 5, accumulate};
    EXPECT_GT(check(c, Precision::Fast, random, "cuda_"), 0);
  }
}

// More tokens than a tile of any kernel; also accumulation into 16-bit outputs.
TEST_P(CudaLinearTest, Prompts) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const DType type = GetParam();
  if (type != DType::F16 && type != DType::BF16) GTEST_SKIP() << "a test of kernels for 16-bit weights";
  for (const auto& [n, k, m] : {std::array<int64_t, 3>{1100, 520, 300}, {264, 72, 517}}) {
    for (const bool accumulate : {false, true}) {
      for (const DType y : {DType::F32, type}) {
        EXPECT_GT(check({type, type, y, n, k, m, accumulate == (y == type), accumulate}, Precision::Fast, random), 0);
      }
    }
  }
}

// Fused silu(gate) * up, from alternating rows.
TEST_P(CudaLinearTest, Gated) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const DType format = GetParam(), type = format == DType::F16 ? DType::F16 : DType::BF16;
  struct Shape {
    int64_t half, width;
    std::vector<int64_t> tokens;
  };
  std::vector<Shape> shapes{{136, 512, {1, 4, 8, 13, 17, 48, 64, 130}}};
  if (format == DType::F16 || format == DType::BF16) shapes.push_back({200, 264, {300, 515}});
  // More rows than the warps of a one-token launch share evenly: the last round is partial.
  if (format == DType::F16 || format == DType::BF16) shapes.push_back({2696, 6152, {1}});
  for (const auto& [half, width, tokens] : shapes) {
    const auto gate = random_weights(format, half, width, random), up = random_weights(format, half, width, random);
    for (const auto* layout : cuda_kernels().layouts) {
      if (!layout->accepts(format, 2 * half, width, gpu().hardware()) || layout->gate_group() == 0) continue;
      const GpuBytes packed(layout->bytes(format, 2 * half, width));
      layout->upload_gated({format, half, width, gate.data()}, {format, half, width, up.data()}, packed.data(),
                           gpu_uploader(), pool_);
      const LinearWeights weights{format, 2 * half, width, layout, packed.data()};
      for (const int64_t m : tokens) {
        std::normal_distribution<float> normal;
        TestMatrix in(m, width), out(m, half), expected(m, half);
        std::vector<float> g(static_cast<size_t>(width)), u(g.size());
        for (int64_t i = 0; i < m * width; ++i) in.at(i / width, i % width) = rounded(normal(random), type);
        for (int64_t j = 0; j < half; ++j) {
          const size_t at = static_cast<size_t>(j) * row_bytes(format, width);
          dequantize_row(format, gate.data() + at, g.data(), width);
          dequantize_row(format, up.data() + at, u.data(), width);
          for (int64_t i = 0; i < m; ++i) {
            const double a = dot(&in.at(i, 0), g.data(), width), b = dot(&in.at(i, 0), u.data(), width);
            expected.at(i, j) = static_cast<float>(a / (1 + std::exp(-a)) * b);
          }
        }
        const LinearProblem p{format, layout->name(), Precision::Fast, 2 * half, width, m, type, true};
        for (const auto* kernel : cuda_kernels().of<LinearOp>()) {
          if (!kernel->can_run(p.bucketed(), gpu().hardware()) || kernel->variant_of(p, gpu().hardware()) != nullptr)
            continue;
          SCOPED_TRACE(to_string(p) + " with " + std::string(kernel->name()));
          const GpuBytes workspace(kernel->workspace_bytes(p.bucketed(), gpu().hardware()));
          const GpuCopy gpu_in(in, type), gpu_out(out, type);
          kernel->run({gpu_in.view(), &weights, nullptr, gpu_out.view(), false, true}, on_gpu(workspace.data()));
          gpu_out.read(out);
          EXPECT_TRUE(out.spare_is_untouched());
          EXPECT_LE(out.distance(expected), is_quantized(format) ? 5e-2 : 2e-2);
        }
      }
    }
  }
}

// Rows of very different sizes, norm weights, and the expected output of a linear layer on the normed rows.
struct NormedProblem {
  static constexpr float kEpsilon = 1e-5f;
  TestMatrix x, normed, expected;
  std::vector<float> norm;

  NormedProblem(const WeightView& weights, int64_t m, std::mt19937& random)
      : x(m, weights.cols), normed(m, weights.cols), expected(m, weights.rows) {
    std::normal_distribution<float> normal;
    const int64_t k = weights.cols;
    for (int64_t i = 0; i < k; ++i) norm.push_back(1 + 0.1f * normal(random));
    std::vector<double> inverse;
    for (int64_t t = 0; t < m; ++t) {
      for (int64_t i = 0; i < k; ++i) x.at(t, i) = (t % 2 == 0 ? 1000.0f : 0.01f) * normal(random);
      inverse.push_back(1 / std::sqrt(dot(&x.at(t, 0), &x.at(t, 0), k) / double(k) + kEpsilon));
      for (int64_t i = 0; i < k; ++i)
        normed.at(t, i) = static_cast<float>(x.at(t, i) * inverse[size_t(t)] * norm[size_t(i)]);
    }
    std::vector<float> row(static_cast<size_t>(k));
    for (int64_t j = 0; j < weights.rows; ++j) {
      dequantize_row(weights.dtype, weights.row(j), row.data(), k);
      for (int64_t i = 0; i < k; ++i) row[size_t(i)] *= norm[size_t(i)];
      for (int64_t t = 0; t < m; ++t)
        expected.at(t, j) = static_cast<float>(dot(&x.at(t, 0), row.data(), k) * inverse[size_t(t)]);
    }
  }
};

// Kernels with a fused norm give the same as a norm followed by the kernel.
TEST_P(CudaLinearTest, NormTakenAlong) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const DType format = GetParam(), type = format == DType::F16 ? DType::F16 : DType::BF16;
  const int64_t block = info(format).block;
  if (format == DType::Q2_K || format == DType::Q3_K) {
    GTEST_SKIP() << "no kernel does that for this format";
  }
  // Layouts round FP8 to int8 with one scale for 32 weights.
  const double tolerance = 2 * rounding_of(type) + (format == DType::F8_E4M3 ? 1.0 / 254 : 0);
  for (LinearShape shape : {LinearShape{40, 264}, {192, 576}, {4096, 4096}, {100, 8192}}) {
    shape.k = (shape.k + block - 1) / block * block;
    const auto weights = random_weights(format, shape.n, shape.k, random);
    const WeightView view{format, shape.n, shape.k, weights.data()};
    for (const int64_t m : {1, 2, 5, 8, 13}) {
      NormedProblem problem(view, m, random);
      int ran = 0;
      for (const auto* layout : cuda_kernels().layouts) {
        if (!layout->accepts(format, shape.n, shape.k, gpu().hardware())) continue;
        const LinearProblem p{format, layout->name(), Precision::Fast, shape.n, shape.k, m, type};
        for (const auto* kernel : cuda_kernels().of<LinearOp>()) {
          if (!kernel->takes_along(p.bucketed(), gpu().hardware())) continue;
          SCOPED_TRACE(to_string(p) + " with " + std::string(kernel->name()));
          const GpuBytes packed(layout->bytes(format, shape.n, shape.k)), gpu_norm(problem.norm);
          layout->upload({&view, 1}, packed.data(), gpu_uploader(), pool_);
          const LinearWeights gpu_weights{format, shape.n, shape.k, layout, packed.data()};
          TestMatrix out(m, shape.n);
          TestMatrix normed(m, shape.k);
          const GpuCopy gpu_x(problem.x), gpu_out(out), gpu_normed(normed, type);
          LinearArgs args{gpu_x.view(), &gpu_weights, nullptr, gpu_out.view()};
          args.norm = gpu_norm.as<float>();
          args.epsilon = NormedProblem::kEpsilon;
          args.normed = gpu_normed.view();
          kernel->run(args, on_gpu());
          gpu_out.read(out);
          if (format == DType::F32) {  // these kernels write the norm, too
            gpu_normed.read(normed);
            EXPECT_TRUE(normed.spare_is_untouched());
            EXPECT_LE(normed.distance(problem.normed), 2 * rounding_of(type));
          }
          EXPECT_TRUE(out.spare_is_untouched());
          for (int64_t t = 0; t < m; ++t) EXPECT_LE(out.distance(problem.expected, t, 1), tolerance);
          ++ran;
        }
      }
      if (m == 1) {
        EXPECT_EQ(ran > 0, gpu().hardware().architecture == 90);
      }
    }
  }
}

// Sums beyond f16 saturate in every kernel: infinity would become NaN in later layers.
TEST_P(CudaLinearTest, SumsBeyondTheRangeOfF16) {
  if (GetParam() != DType::F16) GTEST_SKIP() << "a test of f16";
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const LinearShape shape : {LinearShape{264, 512}, {1104, 2048}}) {
    for (const int64_t m : {1, 8, 13, 64, 130}) {
      for (const bool biased : {false, true}) {
        const Case loud{DType::F16, DType::F16, DType::F16, shape.n, shape.k, m, biased, false, 600};
        EXPECT_GT(check(loud, Precision::Fast, random), 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaLinearTest, testing::ValuesIn([] {
                           std::vector<DType> all;
                           for (const auto& format : all_dtypes()) all.push_back(format.dtype);
                           return all;
                         }()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace millrace
