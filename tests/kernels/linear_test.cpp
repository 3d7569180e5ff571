// Every linear kernel of this machine, at every ISA level, against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>

#include "base/thread_pool.h"
#include "fresh_seed.h"
#include "hardware/detect.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/rows/rows.h"
#include "linear_cases.h"
#include "support.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace millrace {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// How a kernel for quantized weights rounds x to int8: elements per scale, and whether the x of a byte's low nibble
// compensates for that of the high one (packed_x-inl.h).
struct Rounding {
  int64_t block = 32;
  bool paired = false;
  friend auto operator<=>(const Rounding&, const Rounding&) = default;
};

bool named(const LinearKernel& kernel, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), kernel.name()) != names.end();
}

// x rounded through int8. Where a quotient is so close to a tie that a kernel may round the other way, `unsure` sums
// the square of the difference by rows.
struct RoundedX {
  std::vector<float> x;
  std::vector<double> unsure;

  RoundedX(const std::vector<float>& from, int64_t k, Rounding how)
      : x(from.size()), unsure(from.size() / static_cast<size_t>(k)) {
    for (size_t row = 0; row < unsure.size(); ++row) {
      for (int64_t i = 0; i < k; i += how.block) {
        const size_t first = row * static_cast<size_t>(k) + static_cast<size_t>(i);
        round_block(&from[first], &x[first], static_cast<size_t>(std::min(how.block, k - i)), how.paired, unsure[row]);
      }
    }
  }

 private:
  static void round_block(const float* from, float* to, size_t count, bool paired, double& unsure) {
    const float most = paired ? 127 / 1.0625f : 127.0f;
    float largest = 0;
    for (size_t j = 0; j < count; ++j) largest = std::max(largest, std::abs(from[j]));
    const float inverse = largest > 0 ? most / largest : 0.0f, step = largest / most;
    for (size_t j = 0; j < count; ++j) {
      const bool low = paired && j % 32 < 16;
      const float high = low ? std::nearbyint(from[j + 16] * inverse) / 16 : 0.0f;
      const float quotient = from[j] * inverse - high, rounded = std::nearbyint(quotient);
      to[j] = (rounded + high) * step;
      if (std::abs(std::abs(quotient - rounded) - 0.5f) < 1e-4f) unsure += double(step) * step;
    }
  }
};

// One weight matrix with inputs for the largest m, and the expected outputs in double precision.
struct Fixture {
  DType format;
  int64_t n, k, m;
  std::vector<std::byte> weights;
  std::vector<float> x, bias, before;  // before: y when accumulating
  std::vector<double> product;         // x W^T alone
  struct Int8Product {
    std::vector<double> product, unsure;
  };
  std::map<Rounding, Int8Product> products_int8;
  std::vector<double> x_norms;
  double w_norm = 0;  // Frobenius, per row of W: sqrt(sum w^2 / n)
  double w_largest = 0;

  Fixture(DType format, LinearShape shape, int64_t m, std::mt19937& rng)
      : format(format), n(shape.n), k(shape.k), m(m) {
    std::normal_distribution<float> normal;
    weights = random_weights(format, n, k, rng);
    x = random_activations(m, k, rng);
    for (int64_t i = 0; i < n; ++i) bias.push_back(normal(rng));
    for (int64_t i = 0; i < n * m; ++i) before.push_back(normal(rng));
    std::vector<float> row(static_cast<size_t>(k));
    for (int64_t j = 0; j < n; ++j) {
      dequantize_row(format, weights.data() + static_cast<size_t>(j) * row_bytes(format, k), row.data(), k);
      for (const float w : row) {
        w_norm += double(w) * w / double(n);
        w_largest = std::max(w_largest, std::abs(double(w)));
      }
    }
    product = product_with(x);
    w_norm = std::sqrt(w_norm);
    for (int64_t i = 0; i < m; ++i) {
      x_norms.push_back(std::sqrt(dot(x.data() + i * k, x.data() + i * k, k)));
    }
  }

  const Int8Product& product_int8(Rounding how) {
    auto& found = products_int8[how];
    if (found.product.empty()) {
      const RoundedX rounded(x, k, how);
      found = {product_with(rounded.x, /*as_packed=*/true), rounded.unsure};
    }
    return found;
  }

  // as_packed: with the weights that int8 kernels read. Their layout rounds FP8 to int8.
  std::vector<double> product_with(const std::vector<float>& x, bool as_packed = false) const {
    std::vector<double> out(static_cast<size_t>(m * n));
    std::vector<float> row(static_cast<size_t>(k));
    for (int64_t j = 0; j < n; ++j) {
      dequantize_row(format, weights.data() + static_cast<size_t>(j) * row_bytes(format, k), row.data(), k);
      if (as_packed && format == DType::F8_E4M3) {
        std::vector<std::byte> packed(row_bytes(DType::Q8_0, k));
        quantize_row(DType::Q8_0, row.data(), packed.data(), k);
        dequantize_row(DType::Q8_0, packed.data(), row.data(), k);
      }
      for (int64_t i = 0; i < m; ++i) {
        out[size_t(i * n + j)] = dot(x.data() + i * k, row.data(), k);
      }
    }
    return out;
  }
};

// ARM decode kernels multiply nibbles without unpacking them, with one scale per K-block. Small batches of other
// formats use one scale per 128 elements.
Rounding rounding_of(DType format, const LinearKernel& kernel) {
  const bool nibbles = format == DType::Q4_0 || format == DType::Q4_1 || format == DType::Q4_K;
  if (named(kernel, {"flat_i8mm", "flat_dotprod"})) return {std::max<int64_t>(info(format).block, 128), nibbles};
  if (!named(kernel, {"gemv_dotprod", "gemv_dotprod_near", "gemv_neon", "flat_neon"})) return {};
  return {info(format).block, nibbles};
}

struct Buffer {  // 64-byte aligned
  explicit Buffer(size_t bytes) : storage(bytes + 64) {
    const auto address = reinterpret_cast<uintptr_t>(storage.data());
    data = storage.data() + (64 - address % 64) % 64;
  }
  std::vector<std::byte> storage;
  std::byte* data;
};

struct Call {
  const LinearKernel* kernel;
  const Hardware& hardware;
  ThreadPool& pool;
  bool biased, accumulate;
};

// Rows of x and y have padding, which must stay unchanged.
constexpr int64_t kPadding = 5;

std::vector<float> run(const Fixture& f, int64_t m, const LinearWeights& weights, const Call& r,
                       const LinearProblem& problem) {
  Buffer workspace(r.kernel->workspace_bytes(problem.bucketed(), r.hardware));
  std::fill(workspace.storage.begin(), workspace.storage.end(), std::byte{0xff});
  std::vector<float> x(size_t(m * (f.k + kPadding)), kPoison), y(size_t(m * (f.n + kPadding)), kPoison);
  for (int64_t i = 0; i < m; ++i) {
    std::copy_n(&f.x[size_t(i * f.k)], f.k, &x[size_t(i * (f.k + kPadding))]);
    if (r.accumulate) std::copy_n(&f.before[size_t(i * f.n)], f.n, &y[size_t(i * (f.n + kPadding))]);
  }
  LinearArgs args;
  args.x = {DType::F32, m, f.k, f.k + kPadding, reinterpret_cast<std::byte*>(x.data())};
  args.y = {DType::F32, m, f.n, f.n + kPadding, reinterpret_cast<std::byte*>(y.data())};
  args.weights = &weights;
  args.bias = r.biased ? f.bias.data() : nullptr;
  args.accumulate = r.accumulate;
  r.kernel->run(args, {&r.pool, workspace.data});
  std::vector<float> out;
  for (int64_t i = 0; i < m; ++i) {
    const float* row = &y[size_t(i * (f.n + kPadding))];
    out.insert(out.end(), row, row + f.n);
    for (int64_t j = f.n; j < f.n + kPadding; ++j) EXPECT_TRUE(std::isnan(row[j])) << "wrote beyond row " << i;
  }
  return out;
}

// The error of each row in norm, relative to the typical size of an output, |x| |w|.
void expect_close(const Fixture& f, int64_t m, const std::vector<float>& y, const std::vector<double>& product,
                  const std::vector<double>& unsure, const Call& r, double tolerance, const char* against) {
  for (int64_t i = 0; i < m; ++i) {
    double error = 0, size = 0;
    for (int64_t j = 0; j < f.n; ++j) {
      const size_t at = size_t(i * f.n + j);
      const double other = (r.biased ? f.bias[size_t(j)] : 0) + (r.accumulate ? f.before[at] : 0);
      error += std::pow(y[at] - (product[at] + other), 2);
      size += std::pow((r.biased ? std::abs(f.bias[size_t(j)]) : 0) + (r.accumulate ? std::abs(f.before[at]) : 0), 2);
    }
    const double typical = f.x_norms[size_t(i)] * f.w_norm * std::sqrt(double(f.n));
    // An element that rounds the other way multiplies one column of w, which may be larger than others.
    const double ties = unsure.empty() ? 0 : f.w_largest * std::sqrt(2 * unsure[size_t(i)] * double(f.n));
    // The last term: adding bias and y rounds in f32 even if the product is small.
    const double allowed = tolerance * typical + ties + 3e-7 * std::sqrt(size) + 1e-30;
    ASSERT_LE(std::sqrt(error), allowed) << "row " << i << " of " << m << " against " << against;
  }
}

double tolerance_of(const LinearProblem& p, const LinearKernel& kernel) {
  if (p.precision == Precision::Exact || kernel.name() == "reference") return 1e-6;
  if (kernel.name().find("bf16") != std::string_view::npos) return 8e-3;  // both factors round by up to 2^-8
  if (named(kernel, {"gemv_fhm", "gemv_fp16"})) return 1e-3;
  if (p.layout == "rows") return 1e-6;
  const int64_t block = rounding_of(p.format, kernel).block;
  return block == 256 ? 4e-2 : block == 128 ? 3e-2 : 1.5e-2;
}

class LinearTest : public testing::TestWithParam<DType> {
 protected:
  void check(Fixture& f, int64_t m, const LinearWeights& weights, const Call& r, Precision precision) {
    const LinearProblem problem{f.format, weights.layout->name(), precision, f.n, f.k, m};
    if (!r.kernel->can_run(problem.bucketed(), r.hardware)) return;
    SCOPED_TRACE(to_string(problem) + " with " + std::string(r.kernel->name()));
    EXPECT_GT(r.kernel->estimate_us(problem, r.hardware), 0);
    const auto y = run(f, m, weights, r, problem);
    ++checked_;
    const double tolerance = tolerance_of(problem, *r.kernel);
    expect_close(f, m, y, f.product, {}, r, tolerance, "the exact product");
    if (tolerance < 1.5e-2) return;
    const Rounding rounding = rounding_of(f.format, *r.kernel);
    // Minima of K-blocks are multiplied with sums of x in integer steps. Small batches sum 128 elements next to 1.5 *
    // 2^23, which rounds sums of tens of thousands by a few units.
    const bool whole_sums = rounding.paired && rounding.block == 256;
    const auto& [product, unsure] = f.product_int8(rounding);
    // gemv_dotprod_near rounds the sum of 32 nibble products to multiples of sixteen.
    const bool rounded_sums = rounding.paired && r.kernel->name() == "gemv_dotprod_near";
    const double rounded = whole_sums ? 2e-3 : rounding.block == 128 ? 2e-4 : rounded_sums ? 5e-4 : 1e-6;
    expect_close(f, m, y, product, unsure, r, rounded, "the product with x in int8");
  }

  void check_all_kernels(Fixture& f, const LinearLayout& layout, const Hardware& hardware, std::mt19937& rng) {
    const WeightView whole{f.format, f.n, f.k, f.weights.data()};
    const int64_t cut = f.n / 3;  // packed from two parts, as q, k and v are
    const WeightView parts[] = {{f.format, cut, f.k, whole.data}, {f.format, f.n - cut, f.k, whole.row(cut)}};
    Buffer packed(layout.bytes(f.format, f.n, f.k));
    if (!layout.in_place(f.format, f.n, f.k)) layout.pack(parts, packed.data, pools_[1]);
    const LinearWeights weights{f.format, f.n, f.k, &layout,
                                layout.in_place(f.format, f.n, f.k) ? whole.data : packed.data};
    for (const auto* kernel : LinearOp::cpu()) {
      for (const int64_t m : kTestRows) {
        ThreadPool& pool = pools_[rng() % 3];
        Hardware narrowed = hardware;
        narrowed.threads = pool.size();
        const Call r{kernel, narrowed, pool, rng() % 2 == 0, rng() % 2 == 0};
        for (const auto precision : {Precision::Fast, Precision::Exact}) {
          check(f, m, weights, r, precision);
          if (HasFatalFailure()) return;
        }
      }
    }
  }

  ThreadPool pools_[3] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  int checked_ = 0;
};

TEST_P(LinearTest, EveryKernelMatchesTheReference) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (const auto& shape : test_shapes(GetParam())) {
    Fixture fixture(GetParam(), shape, 100, rng);
    IsaSet last;
    for (const auto& level : isa_levels()) {
      const Hardware hardware = detect_cpu(1, level.allowed);
      if (level.name != "scalar" && hardware.isa == last) continue;  // same instruction sets as the level before
      last = hardware.isa;
      for (const auto* layout : LinearOp::cpu_layouts()) {
        if (!layout->accepts(GetParam(), shape.n, shape.k, hardware)) continue;
        SCOPED_TRACE("isa " + std::string(level.name));
        check_all_kernels(fixture, *layout, hardware, rng);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(checked_, 0);
}

// Fusing a preceding norm or silu(gate) * up gives the same bits as running the ops separately.
TEST_P(LinearTest, FusedIsWhatItWouldBeApart) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  const LinearShape shape{8 * 34, info(GetParam()).block == 256 ? 512 : 576};
  Fixture f(GetParam(), shape, 100, rng);
  Fixture weights_of_norm(DType::F32, {1, f.k}, 1, rng);
  const Hardware machine = detect_cpu(1);
  for (const auto* layout : LinearOp::cpu_layouts()) {
    if (!layout->accepts(f.format, f.n, f.k, machine) || f.n / 2 % std::max<int64_t>(layout->gate_multiple(), 1) != 0)
      continue;
    Buffer packed(layout->bytes(f.format, f.n, f.k));
    const WeightView view{f.format, f.n, f.k, f.weights.data()};
    if (!layout->in_place(f.format, f.n, f.k)) layout->pack({&view, 1}, packed.data, pools_[1]);
    const LinearWeights weights{f.format, f.n, f.k, layout,
                                layout->in_place(f.format, f.n, f.k) ? view.data : packed.data};
    for (const auto* kernel : LinearOp::cpu()) {
      for (const int64_t m : kTestRows) {
        Hardware hardware = machine;
        ThreadPool& pool = pools_[rng() % 3];
        hardware.threads = pool.size();
        LinearProblem problem{f.format, layout->name(), Precision::Fast, f.n, f.k, m};
        if (!kernel->can_run(problem.bucketed(), hardware) || !kernel->takes_along(problem, hardware)) continue;
        SCOPED_TRACE(to_string(problem) + " with " + std::string(kernel->name()));
        const auto matrix = [](std::vector<float>& data, int64_t rows, int64_t cols) {
          return Matrix{DType::F32, rows, cols, cols, reinterpret_cast<std::byte*>(data.data())};
        };
        const auto product = [&](LinearArgs args, bool gated, std::vector<float>& y) {
          problem.gated = gated;
          Buffer workspace(kernel->workspace_bytes(problem.bucketed(), hardware));
          std::fill(workspace.storage.begin(), workspace.storage.end(), std::byte{0xff});
          y.assign(size_t(m * (gated ? f.n / 2 : f.n)), kPoison);
          args.weights = &weights;
          args.gated = gated;
          args.y = matrix(y, m, gated ? f.n / 2 : f.n);
          kernel->run(args, {&pool, workspace.data, nullptr, &hardware});
        };
        std::vector<float> normed(size_t(m * f.k), kPoison), room = normed, apart, fused, expected, gated;
        const Matrix x = matrix(f.x, m, f.k), to = matrix(normed, m, f.k);
        const float* norm = weights_of_norm.x.data();
        first_that_runs(NormOp::cpu(), {}, hardware).run({NormKind::Rms, x, to, norm, nullptr, 1e-5f}, {});
        LinearArgs of_normed, with_norm;
        of_normed.x = to;
        with_norm.x = x;
        with_norm.norm = norm;
        with_norm.epsilon = 1e-5f;
        with_norm.normed = matrix(room, m, f.k);
        product(of_normed, false, apart);
        product(with_norm, false, fused);
        EXPECT_TRUE(apart == fused) << "norm";
        if (layout->gate_multiple() == 0) continue;
        expected.assign(size_t(m * f.n / 2), kPoison);
        const Matrix both = matrix(apart, m, f.n), up = both.columns(f.n / 2, f.n / 2);
        first_that_runs(ActivationOp::cpu(), {}, hardware)
            .run({Activation::Silu, both.columns(0, f.n / 2), &up, matrix(expected, m, f.n / 2)}, {});
        product(with_norm, true, gated);
        EXPECT_TRUE(expected == gated) << "gate";
        if (HasFailure()) return;
        ++checked_;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, LinearTest, testing::ValuesIn([] {
                           std::vector<DType> all;
                           for (const auto& type : all_dtypes()) all.push_back(type.dtype);
                           return all;
                         }()),
                         [](const auto& info) { return std::string(name(info.param)); });

// Products beyond the range of f16 must not make y infinite, and small elements of x must count next to a large one.
TEST(Linear, LargeWeightsAndSpikesInF16) {
  std::mt19937 rng(fresh_seed());
  const Hardware hardware = detect_cpu(2);
  ThreadPool pool(2);
  for (const float largest : {0.1f, 100.0f, 60000.0f}) {
    Fixture f(DType::F16, {41, 200}, 1, rng);
    std::uniform_real_distribution<float> weight(-largest, largest);
    for (size_t i = 0; i < f.weights.size(); i += 2) {
      const uint16_t half = f32_to_f16(weight(rng));
      std::memcpy(&f.weights[i], &half, sizeof half);
    }
    f.x[rng() % f.x.size()] = 1000;
    const auto product = f.product_with(f.x);
    const LinearWeights weights{f.format, f.n, f.k, &rows_layout(), f.weights.data()};
    for (const auto* kernel : LinearOp::cpu()) {
      const LinearProblem problem{f.format, rows_layout().name(), Precision::Fast, f.n, f.k, 1};
      if (!kernel->can_run(problem, hardware)) continue;
      SCOPED_TRACE(std::string(kernel->name()));
      const auto y = run(f, 1, weights, {kernel, hardware, pool, false, false}, problem);
      // Tolerance: the contribution of one weight, of which one meets the spike.
      for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], product[i], 1e-3 * 1000 * largest);
    }
  }
}

TEST(Linear, BucketsGrowByAThirdOrAHalf) {
  for (int64_t m = 1; m <= 8; ++m) EXPECT_EQ(bucket_rows(m), m);
  EXPECT_EQ(bucket_rows(9), 12);
  EXPECT_EQ(bucket_rows(12), 12);
  EXPECT_EQ(bucket_rows(13), 16);
  EXPECT_EQ(bucket_rows(17), 24);
  EXPECT_EQ(bucket_rows(512), 512);
  EXPECT_EQ(bucket_rows(513), 768);
}

}  // namespace
}  // namespace millrace
