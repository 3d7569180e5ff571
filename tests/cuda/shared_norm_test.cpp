// Linear kernels that share a norm: the layer before it writes scaled rows and their squares, the layer after it
// divides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/thread_pool.h"
#include "cuda/support.h"
#include "fresh_seed.h"
#include "kernels/linear_cases.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr int64_t kRows[] = {1, 2, 3, 4, 5, 8, 13, 31, 48, 64};

// Weights in a GPU layout, with their values.
class Layer {
 public:
  Layer(const LinearLayout& layout, DType format, int64_t n, int64_t k, std::mt19937& random)
      : bytes_(random_weights(format, n, k, random)), packed_(layout.bytes(format, n, k)) {
    const WeightView view{format, n, k, bytes_.data()};
    layout.upload({&view, 1}, packed_.data(), gpu_uploader(), pool_);
    weights_ = {format, n, k, &layout, packed_.data()};
    values_.resize(static_cast<size_t>(n * k));
    for (int64_t i = 0; i < n; ++i) dequantize_row(format, view.row(i), values_.data() + i * k, k);
  }
  const LinearWeights& weights() const { return weights_; }
  struct Product {
    double sum = 0, squares = 0;  // squares: of the terms, to bound rounding errors even if terms cancel
  };
  // Row t of x times the weights.
  Product product(TestMatrix& x, int64_t t, int64_t row) const {
    const float *a = &x.at(t, 0), *b = values_.data() + row * weights_.k;
    return {dot(a, b, weights_.k), sum_of(weights_.k, [&](int64_t i) { return std::pow(double(a[i]) * b[i], 2); })};
  }

 private:
  ThreadPool pool_{1};
  std::vector<std::byte> bytes_;
  GpuBytes packed_;
  LinearWeights weights_;
  std::vector<float> values_;
};

std::vector<float> norm_weights(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> weights;
  for (int64_t i = 0; i < n; ++i) weights.push_back(1 + 0.1f * normal(random));
  return weights;
}

// Rows of very different sizes.
void fill(TestMatrix& x, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const Matrix view = x.view();
  for (int64_t t = 0; t < view.rows; ++t) {
    for (int64_t i = 0; i < view.cols; ++i) x.at(t, i) = (t % 2 == 0 ? 100.0f : 0.1f) * normal(random);
  }
}

// Calls f(kernel, layer, m) for every kernel that shares a norm in a problem of that size; returns the m for which one
// exists.
template <class F>
std::vector<int64_t> for_kernels(DType format, const LinearShape& shape, std::mt19937& random, F f) {
  std::vector<int64_t> ran;
  for (const auto* layout : cuda_kernels().layouts) {
    if (!layout->accepts(format, shape.n, shape.k, gpu().hardware())) continue;
    const Layer layer(*layout, format, shape.n, shape.k, random);
    for (const int64_t m : kRows) {
      const LinearProblem problem{format, layout->name(), Precision::Fast, shape.n, shape.k, m, DType::BF16};
      for (const auto* kernel : cuda_kernels().of<LinearOp>()) {
        if (!kernel->shares_between(problem, gpu().hardware())) continue;
        SCOPED_TRACE(to_string(problem) + " with " + std::string(kernel->name()));
        f(*kernel, layer, m);
        if (ran.empty() || ran.back() != m) ran.push_back(m);
      }
    }
  }
  return ran;
}

bool is_hopper() { return gpu().hardware().architecture == 90; }

// 16-bit weights: for one token and many rows, kernels that compute the norm themselves take over.
void expect_flat(const std::vector<int64_t>& ran) { EXPECT_EQ(ran.size() + 1 >= std::size(kRows), is_hopper()); }
void expect_all(const std::vector<int64_t>& ran) { EXPECT_EQ(ran.size(), is_hopper() ? std::size(kRows) : 0); }

// Quantized weights are multiplied as f16 within sums up to a thousand times larger, or rounded to bf16 after scaling.
double error_of(DType format, const LinearKernel& kernel) {
  if (kernel.name() == "cuda_packed-flat") return 2 * rounding_of(DType::BF16);
  return format == DType::BF16 ? 1e-5 : 1e-4;
}

// The norm of a row's error relative to the allowed one: a share of the summed terms, since they may cancel, plus one
// rounding of the result, since it may be far larger than its terms.
double error_of_row(TestMatrix& y, TestMatrix& expected, int64_t t, double share, double squares, double rounding = 0) {
  double error = 0, result = 0;
  for (int64_t i = 0; i < y.view().cols; ++i) {
    error += std::pow(double(y.at(t, i)) - expected.at(t, i), 2);
    result += std::pow(double(expected.at(t, i)), 2);
  }
  return std::isnan(error) ? 1e30 : std::sqrt(error) / (share * std::sqrt(squares) + rounding * std::sqrt(result));
}

// The layer before a norm, against f64 sums.
std::vector<int64_t> check_front(DType format, const LinearShape& shape, std::mt19937& random) {
  const int64_t n = shape.n, parts = n / NormAhead::kPart;
  const auto norm = norm_weights(n, random);
  return for_kernels(format, shape, random, [&](const LinearKernel& kernel, const Layer& layer, int64_t m) {
    TestMatrix x(m, shape.k), y(m, n), scaled(m, n), expected(m, n), expected_scaled(m, n);
    fill(x, random);
    round_to(x, DType::BF16);
    fill(y, random);
    std::vector<double> squares(static_cast<size_t>(m)), scaled_squares(squares);
    for (int64_t t = 0; t < m; ++t) {
      for (int64_t i = 0; i < n; ++i) {
        const auto product = layer.product(x, t, i);
        const double square = product.squares + std::pow(y.at(t, i), 2);
        squares[size_t(t)] += square;
        scaled_squares[size_t(t)] += square * std::pow(norm[size_t(i)], 2);
        expected.at(t, i) = static_cast<float>(y.at(t, i) + product.sum);
        expected_scaled.at(t, i) = expected.at(t, i) * norm[size_t(i)];
      }
    }
    const GpuCopy gpu_x(x, DType::BF16), gpu_y(y), gpu_scaled(scaled, DType::BF16);
    const std::vector<float> poison(static_cast<size_t>(m * parts), std::nanf(""));
    const GpuBytes gpu_norm(norm), gpu_squares(poison);
    LinearArgs args{gpu_x.view(), &layer.weights(), nullptr, gpu_y.view(), true};
    args.ahead = {gpu_norm.as<float>(), gpu_scaled.view(), gpu_squares.as<float>()};
    kernel.run(args, on_gpu());
    gpu_y.read(y);
    gpu_scaled.read(scaled);
    EXPECT_TRUE(y.spare_is_untouched() && scaled.spare_is_untouched());
    const auto read = gpu_squares.read();
    for (int64_t t = 0; t < m; ++t) {
      const double error = error_of(format, kernel);
      EXPECT_LE(error_of_row(y, expected, t, error, squares[size_t(t)]), 1);
      EXPECT_LE(error_of_row(scaled, expected_scaled, t, error, scaled_squares[size_t(t)], rounding_of(DType::BF16)),
                1);
      double sum = 0, expected_sum = 0;
      for (int64_t i = 0; i < n; ++i) expected_sum += double(expected.at(t, i)) * expected.at(t, i);
      for (int64_t i = 0; i < parts; ++i) sum += reinterpret_cast<const float*>(read.data())[t * parts + i];
      EXPECT_NEAR(sum, expected_sum, std::max(1e-4, 2 * error) * std::max(squares[size_t(t)], expected_sum));
    }
  });
}

// The layer after a norm, with outputs of either type.
std::vector<int64_t> check_behind(DType format, const LinearShape& shape, std::mt19937& random,
                                  DType type = DType::F32) {
  const int64_t n = shape.n, k = shape.k;
  return for_kernels(format, shape, random, [&](const LinearKernel& kernel, const Layer& layer, int64_t m) {
    TestMatrix x(m, k), y(m, n), expected(m, n);
    fill(x, random);
    round_to(x, DType::BF16);
    std::vector<float> squares;
    std::vector<double> sizes(static_cast<size_t>(m));
    for (int64_t t = 0; t < m; ++t) {
      double sum = 0;
      for (int64_t part = 0; part < k / NormAhead::kPart; ++part) {  // arbitrary: they need not be those of x
        squares.push_back((t % 2 == 0 ? 1e5f : 0.1f) * static_cast<float>(1 + part % 7));
        sum += squares.back();
      }
      for (int64_t i = 0; i < n; ++i) {
        const auto product = layer.product(x, t, i);
        const double mean = sum / double(k) + kEpsilon;
        sizes[size_t(t)] += product.squares / mean;
        expected.at(t, i) = static_cast<float>(product.sum / std::sqrt(mean));
      }
    }
    const GpuCopy gpu_x(x, DType::BF16), gpu_y(y, type);
    const GpuBytes gpu_squares(squares);
    LinearArgs args{gpu_x.view(), &layer.weights(), nullptr, gpu_y.view()};
    args.epsilon = kEpsilon;
    args.squares = gpu_squares.as<float>();
    kernel.run(args, on_gpu());
    gpu_y.read(y);
    EXPECT_TRUE(y.spare_is_untouched());
    for (int64_t t = 0; t < m; ++t) {
      EXPECT_LE(error_of_row(y, expected, t, error_of(format, kernel), sizes[size_t(t)], rounding_of(type)), 1);
    }
  });
}

// silu(gate) * up of a layer after a norm.
std::vector<int64_t> check_gated(int64_t half, int64_t k, std::mt19937& random) {
  const auto gate = random_weights(DType::BF16, half, k, random), up = random_weights(DType::BF16, half, k, random);
  const WeightView gate_view{DType::BF16, half, k, gate.data()}, up_view{DType::BF16, half, k, up.data()};
  std::vector<int64_t> ran;
  ThreadPool pool(1);
  for (const auto* layout : cuda_kernels().layouts) {
    if (!layout->accepts(DType::BF16, 2 * half, k, gpu().hardware()) || layout->gate_group() == 0) continue;
    const GpuBytes packed(layout->bytes(DType::BF16, 2 * half, k));
    layout->upload_gated(gate_view, up_view, packed.data(), gpu_uploader(), pool);
    const LinearWeights weights{DType::BF16, 2 * half, k, layout, packed.data()};
    for (const int64_t m : kRows) {
      TestMatrix x(m, k), y(m, half), expected(m, half);
      fill(x, random);
      round_to(x, DType::BF16);
      const float square = 40;  // of each part: the root mean square is sqrt(40 / 16)
      const std::vector<float> squares(static_cast<size_t>(m * k / NormAhead::kPart), square);
      const double divisor = std::sqrt(double(square) / double(NormAhead::kPart) + kEpsilon);
      std::vector<float> g(static_cast<size_t>(k)), u(g.size());
      for (int64_t i = 0; i < half; ++i) {
        dequantize_row(DType::BF16, gate_view.row(i), g.data(), k);
        dequantize_row(DType::BF16, up_view.row(i), u.data(), k);
        for (int64_t t = 0; t < m; ++t) {
          const double a = dot(&x.at(t, 0), g.data(), k) / divisor, b = dot(&x.at(t, 0), u.data(), k) / divisor;
          expected.at(t, i) = static_cast<float>(a / (1 + std::exp(-a)) * b);
        }
      }
      const LinearProblem p{DType::BF16, layout->name(), Precision::Fast, 2 * half, k, m, DType::BF16, true};
      for (const auto* kernel : cuda_kernels().of<LinearOp>()) {
        if (!kernel->shares_between(p, gpu().hardware())) continue;
        SCOPED_TRACE(to_string(p) + " with " + std::string(kernel->name()));
        const GpuCopy gpu_x(x, DType::BF16), gpu_y(y, DType::BF16);
        const GpuBytes gpu_squares(squares);
        LinearArgs args{gpu_x.view(), &weights, nullptr, gpu_y.view(), false, true};
        args.epsilon = kEpsilon;
        args.squares = gpu_squares.as<float>();
        kernel->run(args, on_gpu());
        gpu_y.read(y);
        EXPECT_TRUE(y.spare_is_untouched());
        EXPECT_LE(y.distance(expected), 2 * rounding_of(DType::BF16));
        if (ran.empty() || ran.back() != m) ran.push_back(m);
      }
    }
  }
  return ran;
}

class CudaSharedNorm : public ::testing::Test {
 protected:
  const uint32_t seed_ = fresh_seed();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::mt19937 random_{seed_};
};

TEST_F(CudaSharedNorm, LayerInFront) {
  // The last two split rows so that two blocks that share K have unequal numbers of tiles.
  for (const LinearShape shape : {LinearShape{576, 320}, {1024, 1024}, {8448, 64}, {1104, 1088}, {1104, 2048}}) {
    expect_flat(check_front(DType::BF16, shape, random_));
  }
}

TEST_F(CudaSharedNorm, LayerBehind) {
  for (const LinearShape shape : {LinearShape{272, 576}, {1024, 1024}, {9600, 64}, {1104, 1088}, {1104, 2048}}) {
    expect_flat(check_behind(DType::BF16, shape, random_));
  }
}

TEST_F(CudaSharedNorm, LayerBehindRoundsItsOutputs) {
  for (const LinearShape shape : {LinearShape{272, 576}, {1104, 1088}}) {
    expect_flat(check_behind(DType::BF16, shape, random_, DType::BF16));
  }
}

TEST_F(CudaSharedNorm, GatedLayerBehind) { expect_flat(check_gated(552, 1088, random_)); }

// Little work, for tools that slow it down a thousandfold.
TEST_F(CudaSharedNorm, FewRows) {
  expect_flat(check_front(DType::BF16, {48, 2304}, random_));
  expect_flat(check_behind(DType::BF16, {48, 2304}, random_));
  expect_flat(check_gated(48, 576, random_));
  expect_all(check_front(DType::Q4_K, {48, 2304}, random_));
  expect_all(check_behind(DType::Q4_K, {48, 2304}, random_));
}

TEST_F(CudaSharedNorm, QuantizedLayerInFront) {
  for (const DType format : {DType::Q4_0, DType::Q4_1, DType::Q4_K, DType::Q6_K, DType::Q8_0}) {
    for (const LinearShape shape : {LinearShape{16, 256}, {2192, 512}}) {
      expect_all(check_front(format, shape, random_));
    }
  }
}

TEST_F(CudaSharedNorm, QuantizedLayerBehind) {
  for (const DType format : {DType::Q4_0, DType::Q4_1, DType::Q4_K, DType::Q6_K, DType::Q8_0}) {
    for (const LinearShape shape : {LinearShape{16, 256}, {2192, 512}}) {
      expect_all(check_behind(format, shape, random_));
    }
  }
}

// Rows so long that units reuse shared memory. A separate fixture name, to exclude it from sanitizers.
class CudaLongRowsShareNorm : public CudaSharedNorm {};

TEST_F(CudaLongRowsShareNorm, LayerInFront) {
  for (const DType format : {DType::Q4_0, DType::Q4_K, DType::Q8_0}) {
    for (const LinearShape shape : {LinearShape{48, 14336}, {592, 4352}}) {
      expect_all(check_front(format, shape, random_));
    }
  }
}

TEST_F(CudaLongRowsShareNorm, LayerBehind) {
  for (const DType format : {DType::Q4_0, DType::Q4_K, DType::Q8_0}) {
    for (const LinearShape shape : {LinearShape{48, 14336}, {592, 4352}}) {
      expect_all(check_behind(format, shape, random_));
    }
  }
}

}  // namespace
}  // namespace millrace
