#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/thread_pool.h"
#include "kernels/kernel_set.h"
#include "row_op_cases.h"
#include "support.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

// A few f32 roundings, in the norm of the result.
constexpr double kTolerance = 4e-7;

// Runs every kernel that can, on one and on three threads, and compares the result of `check` with the tolerance.
template <class Op>
void for_kernels(const KernelList<Op>& kernels, const typename Op::Problem& problem, uint32_t seed, double tolerance,
                 const std::function<double(const Kernel<Op>&, ThreadPool&)>& error) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    Hardware hardware = test_hardware();
    hardware.threads = threads;
    for (const Kernel<Op>* kernel : kernels) {
      if (!kernel->can_run(problem, hardware)) continue;
      SCOPED_TRACE(to_string(problem) + " " + std::string(kernel->name()) + " threads " + std::to_string(threads) +
                   " seed " + std::to_string(seed));
      EXPECT_GT(kernel->estimate_us(problem, hardware), 0);
      EXPECT_LE(error(*kernel, pool), tolerance);
    }
  }
}

TEST(Norm, MatchesTheReference) {
  for (const NormCase& c : norm_cases()) {
    Random random;
    const auto& p = c.problem;
    TestMatrix x(p.rows, p.cols, random), weight(1, p.cols, random), bias(1, p.cols, random);
    const TestMatrix before = p.accumulate ? TestMatrix(p.rows, p.cols, random) : TestMatrix(p.rows, p.cols);
    TestMatrix expected = before;
    for (int64_t i = 0; i < p.cols; ++i) {
      for (int64_t r = 0; r < p.rows; ++r) x.at(r, i) += c.offset;
    }
    const auto args = [&](TestMatrix& in, TestMatrix& out) {
      return NormOp::Args{p.kind,
                          in.view(),
                          out.view(),
                          c.weighted ? &weight.at(0, 0) : nullptr,
                          c.biased ? &bias.at(0, 0) : nullptr,
                          1e-5f,
                          static_cast<int>(p.groups),
                          p.accumulate,
                          c.weights_per_group,
                          c.second_from > 0 ? &weight.at(0, p.cols / p.groups) : nullptr,
                          c.second_from};
    };
    NormOp::reference()->run(args(x, expected), {});
    // A mean far from zero takes digits from the differences to it.
    const double tolerance = kTolerance * (1 + std::abs(c.offset));
    for_kernels<NormOp>(NormOp::cpu(), p, random.seed(), tolerance, [&](const auto& kernel, ThreadPool& pool) {
      TestMatrix out = before, same = x;
      kernel.run(args(x, out), {&pool, nullptr});
      EXPECT_TRUE(out.spare_is_untouched());
      if (!p.accumulate) {
        kernel.run(args(same, same), {&pool, nullptr});
        EXPECT_TRUE(same.same_bits(out)) << "in place";
      }
      return out.distance(expected);
    });
  }
}

TEST(Norm, SurvivesZerosAndLargeInputs) {
  for (const Kernel<NormOp>* kernel : NormOp::cpu()) {
    if (!kernel->can_run({}, test_hardware())) continue;
    for (float value : {0.0f, 1e-20f, 1e15f}) {
      TestMatrix x(1, 50), out(1, 50);
      for (int i = 0; i < 50; ++i) x.at(0, i) = value;
      kernel->run({NormKind::Rms, x.view(), out.view()}, {});
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(std::isfinite(out.at(0, i))) << kernel->name() << " " << value;
    }
  }
}

TEST(Rope, MatchesTheReference) {
  for (const RopeOp::Problem& p : rope_cases()) {
    Random random;
    TestMatrix x(p.rows, int64_t{p.heads} * p.head_dim, random), angles(p.rows, p.rotary_dim, random);
    const auto args = [&](TestMatrix& in) {
      return RopeOp::Args{p.style, in.view(), angles.view(), p.heads, p.head_dim, p.rotary_dim};
    };
    TestMatrix expected = x;
    RopeOp::reference()->run(args(expected), {});
    for_kernels<RopeOp>(RopeOp::cpu(), p, random.seed(), kTolerance, [&](const auto& kernel, ThreadPool& pool) {
      TestMatrix out = x;
      kernel.run(args(out), {&pool, nullptr});
      EXPECT_TRUE(out.spare_is_untouched());
      return out.distance(expected);
    });
  }
}

TEST(Rope, TurnsThePairsOfItsStyle) {
  for (const Kernel<RopeOp>* kernel : RopeOp::cpu()) {
    if (!kernel->can_run({}, test_hardware())) continue;
    TestMatrix angles(1, 4);  // two rotations by a quarter turn
    angles.at(0, 0) = angles.at(0, 1) = 0;
    angles.at(0, 2) = angles.at(0, 3) = 1;
    for (RopeStyle style : {RopeStyle::Halves, RopeStyle::Interleaved}) {
      TestMatrix x(1, 5);
      for (int i = 0; i < 5; ++i) x.at(0, i) = static_cast<float>(i + 1);
      kernel->run({style, x.view(), angles.view(), 1, 5, 4}, {});
      const bool halves = style == RopeStyle::Halves;
      const float expected[] = {halves ? -3.0f : -2.0f, halves ? -4.0f : 1.0f, halves ? 1.0f : -4.0f,
                                halves ? 2.0f : 3.0f, 5.0f};
      for (int i = 0; i < 5; ++i) EXPECT_EQ(x.at(0, i), expected[i]) << kernel->name() << " " << i;
    }
  }
}

TEST(Activation, MatchesTheReference) {
  for (const ActivationOp::Problem& p : activation_cases()) {
    Random random;
    TestMatrix x(p.rows, p.cols, random, 3), gate(p.rows, p.cols, random), expected(p.rows, p.cols);
    const Matrix gate_view = gate.view();
    const auto args = [&](TestMatrix& in, TestMatrix& out) {
      return ActivationOp::Args{p.kind, in.view(), p.gated ? &gate_view : nullptr, out.view(), kTestClamp};
    };
    ActivationOp::reference()->run(args(x, expected), {});
    for_kernels<ActivationOp>(ActivationOp::cpu(), p, random.seed(), kTolerance,
                              [&](const auto& kernel, ThreadPool& pool) {
                                TestMatrix out(p.rows, p.cols), same = x;
                                kernel.run(args(x, out), {&pool, nullptr});
                                kernel.run(args(same, same), {&pool, nullptr});
                                EXPECT_TRUE(out.spare_is_untouched());
                                EXPECT_TRUE(same.same_bits(out)) << "in place";
                                return out.distance(expected);
                              });
  }
}

// Each result is accurate on its own over the whole input range, not only in the norm.
TEST(Activation, IsAccurateEverywhere) {
  std::vector<float> points;
  for (float x = 1e-30f; x < 1e30f; x *= 1.37f) points.push_back(x), points.push_back(-x);
  for (float x = -14; x < 14; x += 0.0137f) points.push_back(x);
  const int64_t n = static_cast<int64_t>(points.size());
  TestMatrix x(1, n), out(1, n), expected(1, n);
  for (int64_t i = 0; i < n; ++i) x.at(0, i) = points[static_cast<size_t>(i)];
  for (Activation kind : {Activation::Silu, Activation::GeluTanh, Activation::GeluErf, Activation::Relu}) {
    ActivationOp::reference()->run({kind, x.view(), nullptr, expected.view()}, {});
    for (const Kernel<ActivationOp>* kernel : ActivationOp::cpu()) {
      if (!kernel->can_run({}, test_hardware())) continue;
      kernel->run({kind, x.view(), nullptr, out.view()}, {});
      for (int64_t i = 0; i < n; ++i) {
        const double allowed = 5e-7 * std::abs(expected.at(0, i)) + 1e-7 * std::min(1.0f, std::abs(x.at(0, i)));
        EXPECT_NEAR(out.at(0, i), expected.at(0, i), allowed)
            << kernel->name() << " " << static_cast<int>(kind) << " " << x.at(0, i);
      }
    }
  }
}

// The limits of gpt-oss, at and beyond which the function is constant in the clamped input.
TEST(Activation, ClampedSwigluIsAccurateEverywhere) {
  std::vector<float> gates, ups;
  for (float g : {-1e30f, -90.0f, -8.0f, -7.0f, -1.0f, -1e-6f, 0.0f, 0.5f, 3.0f, 6.999f, 7.0f, 7.001f, 1e30f}) {
    for (float u : {-1e30f, -7.001f, -7.0f, -1.0f, 0.0f, 0.25f, 7.0f, 1e30f}) gates.push_back(g), ups.push_back(u);
  }
  const auto n = static_cast<int64_t>(gates.size());
  TestMatrix gate(1, n), up(1, n), out(1, n), expected(1, n);
  for (int64_t i = 0; i < n; ++i) {
    gate.at(0, i) = gates[static_cast<size_t>(i)], up.at(0, i) = ups[static_cast<size_t>(i)];
    const double g = std::min(7.0, double{gate.at(0, i)}), u = std::clamp(double{up.at(0, i)}, -7.0, 7.0);
    expected.at(0, i) = static_cast<float>((u + 1) * g / (1 + std::exp(-1.702 * g)));
  }
  const Matrix up_view = up.view();
  for (const Kernel<ActivationOp>* kernel : ActivationOp::cpu()) {
    if (!kernel->can_run({Activation::ClampedSwiglu, true, 1, n}, test_hardware())) continue;
    EXPECT_FALSE(kernel->can_run({Activation::ClampedSwiglu, false, 1, n}, test_hardware()));
    kernel->run({Activation::ClampedSwiglu, gate.view(), &up_view, out.view(), {}}, {});
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(out.at(0, i), expected.at(0, i), 1e-6 * std::abs(expected.at(0, i)) + 1e-7)
          << kernel->name() << " " << gate.at(0, i) << " " << up.at(0, i);
    }
  }
}

TEST(Elementwise, MatchesTheReference) {
  for (const ElementwiseOp::Problem& p : elementwise_cases()) {
    Random random;
    const bool gather = p.kind == Elementwise::Gather;
    TestMatrix a(gather ? p.rows + 5 : p.rows, p.cols, random, 20), b(p.rows, p.cols, random), expected(p.rows, p.cols);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < p.rows; ++i) ids.push_back(random.below(static_cast<int>(p.rows) + 5));
    const auto args = [&](TestMatrix& out) {
      return ElementwiseOp::Args{p.kind, a.view(), b.view(), out.view(), 30.0f, ids, 7};
    };
    ElementwiseOp::reference()->run(args(expected), {});
    for_kernels<ElementwiseOp>(ElementwiseOp::cpu(), p, random.seed(), kTolerance,
                               [&](const auto& kernel, ThreadPool& pool) {
                                 TestMatrix out(p.rows, p.cols);
                                 kernel.run(args(out), {&pool, nullptr});
                                 EXPECT_TRUE(out.spare_is_untouched());
                                 return out.distance(expected);
                               });
  }
}

TEST(Elementwise, SoftcapIsAccurateEverywhere) {
  std::vector<float> points;
  for (float x = 1e-20f; x < 1e20f; x *= 1.13f) points.push_back(x), points.push_back(-x);
  const int64_t n = static_cast<int64_t>(points.size());
  TestMatrix x(1, n), out(1, n);
  for (int64_t i = 0; i < n; ++i) x.at(0, i) = points[static_cast<size_t>(i)];
  for (const Kernel<ElementwiseOp>* kernel : ElementwiseOp::cpu()) {
    if (!kernel->can_run({}, test_hardware())) continue;
    kernel->run({Elementwise::Softcap, x.view(), {}, out.view(), 50.0f, {}}, {});
    for (int64_t i = 0; i < n; ++i) {
      const double expected = 50 * std::tanh(static_cast<double>(x.at(0, i)) / 50);
      EXPECT_NEAR(out.at(0, i), expected, 5e-7 * std::abs(expected)) << kernel->name() << " " << x.at(0, i);
    }
  }
}

TEST(Embedding, MatchesTheReference) {
  for (const EmbeddingOp::Problem& p : embedding_cases()) {
    Random random;
    const int64_t rows = 50;
    std::vector<std::byte> table(static_cast<size_t>(rows) * row_bytes(p.format, p.cols));
    // Random bytes may decode to non-finite numbers: draw again then.
    std::vector<float> row(static_cast<size_t>(p.cols));
    for (int64_t r = 0; r < rows; ++r) {
      const size_t bytes = row_bytes(p.format, p.cols);
      const size_t block = static_cast<size_t>(info(p.format).bytes);
      for (size_t at = 0; at < bytes; at += block) {
        std::byte* to = table.data() + static_cast<size_t>(r) * bytes + at;
        const auto finite = [&] {
          float values[256];
          dequantize_row(p.format, to, values, info(p.format).block);
          return std::all_of(values, values + info(p.format).block, [](float v) { return std::abs(v) < 1e6f; });
        };
        do {
          for (size_t i = 0; i < block; ++i) to[i] = static_cast<std::byte>(random.below(256));
        } while (!finite());
      }
    }
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < p.rows; ++i) ids.push_back(random.below(static_cast<int>(rows)));
    for (bool accumulate : {false, true}) {
      TestMatrix base(p.rows, p.cols, random);
      const auto args = [&](TestMatrix& out) {
        return EmbeddingOp::Args{{p.format, rows, p.cols, table.data()}, ids, 1.5f, accumulate, out.view()};
      };
      TestMatrix expected = accumulate ? base : TestMatrix(p.rows, p.cols);
      EmbeddingOp::reference()->run(args(expected), {});
      for_kernels<EmbeddingOp>(EmbeddingOp::cpu(), p, random.seed(), kTolerance,
                               [&](const auto& kernel, ThreadPool& pool) {
                                 TestMatrix out = accumulate ? base : TestMatrix(p.rows, p.cols);
                                 kernel.run(args(out), {&pool, nullptr});
                                 EXPECT_TRUE(out.spare_is_untouched());
                                 return out.distance(expected);
                               });
    }
  }
}

// Two sequences, one of which continues in the middle of a page. Memory outside the new rows stays unchanged, and the
// stored bits equal the reference's.
TEST(KvWrite, StoresTheBitsOfTheReference) {
  for (const KvWriteOp::Problem& p : kv_write_cases()) {
    Random random;
    const int rows = static_cast<int>(p.rows), block_size = 16;
    TestMatrix k(p.rows, int64_t{p.kv_heads} * p.key_dim, random),
        v(p.rows, int64_t{p.kv_heads} * p.value_dim, random, 100);
    std::vector<int32_t> pages((p.rows + 7) / block_size + 4);
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
    random.shuffle(pages);
    const std::span<const int32_t> all(pages);
    const int first_rows = rows / 3;
    const std::vector<SequenceSlice> slices = {
        {0, first_rows, 7, 0, all.first((7 + first_rows) / block_size + 1)},
        {first_rows, rows - first_rows, 0, 0, all.subspan((7 + first_rows) / block_size + 1)}};
    KvLayer kv{p.kv, p.kv_heads, p.key_dim, p.value_dim, block_size};
    kv.latent = p.latent;
    const size_t bytes = kv.key_offset(std::ssize(pages), 0, 0), value_bytes = kv.value_offset(std::ssize(pages), 0, 0);
    const auto write = [&](const Kernel<KvWriteOp>& kernel, ThreadPool* pool) {
      std::vector<std::byte> memory(bytes + value_bytes, std::byte{0xa5});
      kv.keys = memory.data();
      kv.values = memory.data() + (p.latent ? 0 : bytes);
      kernel.run({k.view(), p.latent ? Matrix() : v.view(), kv, slices}, {pool, nullptr});
      return memory;
    };
    const std::vector<std::byte> expected = write(*KvWriteOp::reference(), nullptr);
    for_kernels<KvWriteOp>(KvWriteOp::cpu(), p, random.seed(), 0, [&](const auto& kernel, ThreadPool& pool) {
      return write(kernel, &pool) == expected ? 0 : 1;
    });
  }
}

// A stored infinity or NaN would turn masked rows into NaN, since zero times either is NaN.
TEST(KvWrite, StoresNumbersWhateverComes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kMost = std::numeric_limits<float>::max();
  const float hostile[] = {std::nanf(""), -std::nanf(""), kInfinity,  -kInfinity, kMost,
                           -kMost,        65520,          3.3961e38f, 1e9f};
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::Q8_0, kFp8}) {
    for (const int head_dim : {64, 96}) {
      const KvWriteOp::Problem p{dtype, 1, head_dim, head_dim, 1};
      Random random;
      TestMatrix k(1, head_dim, random), v(1, head_dim, random, 1e30f);
      for (int i = 0; i < 2 * head_dim / 3; ++i) {
        TestMatrix& row = random.below(2) == 0 ? k : v;
        row.at(0, random.below(head_dim)) = hostile[random.below(static_cast<int>(std::size(hostile)))];
      }
      const int32_t page = 0;
      const SequenceSlice slice{0, 1, 0, 0, {&page, 1}};
      KvLayer kv{dtype, 1, head_dim, head_dim, 16};
      const auto write = [&](const Kernel<KvWriteOp>& kernel, ThreadPool* pool) {
        std::vector<std::byte> memory(2 * 16 * kv.key_row_bytes());
        kv.keys = memory.data();
        kv.values = memory.data() + memory.size() / 2;
        kernel.run({k.view(), v.view(), kv, {&slice, 1}}, {pool, nullptr});
        std::vector<float> stored(static_cast<size_t>(2 * head_dim));
        dequantize_row(dtype, kv.keys, stored.data(), head_dim);
        dequantize_row(dtype, kv.values, stored.data() + head_dim, head_dim);
        return stored;
      };
      const std::vector<float> expected = write(*KvWriteOp::reference(), nullptr);
      for (const float x : expected) EXPECT_TRUE(std::isfinite(x)) << to_string(p);
      for_kernels<KvWriteOp>(KvWriteOp::cpu(), p, random.seed(), 0, [&](const auto& kernel, ThreadPool& pool) {
        return write(kernel, &pool) == expected ? 0 : 1;
      });
    }
  }
}

// A decode, a prompt that continues in the middle of a page, and another decode: the result equals rope followed by
// kv_write.
TEST(RopeWrite, IsRopeAndThenKvWrite) {
  for (const KvWriteOp::Problem& p : kv_write_cases()) {
    for (const int rotary : {p.key_dim, p.key_dim / 4 * 2, 0}) {
      Random random;
      const int block_size = 16, heads = 2 * p.kv_heads, prompt = static_cast<int>(p.rows);
      const int64_t rows = p.rows + 2, width = int64_t{p.kv_heads} * p.key_dim;
      const RopeStyle style = random.below(2) == 0 ? RopeStyle::Halves : RopeStyle::Interleaved;
      TestMatrix q(rows, 2 * width, random), k(rows, width, random), v(rows, int64_t{p.kv_heads} * p.value_dim, random),
          angles(rows, rotary, random);
      std::vector<int32_t> pages((p.rows + 7) / block_size + 4);
      for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
      random.shuffle(pages);
      const std::span<const int32_t> all(pages);
      const std::vector<SequenceSlice> slices = {
          {0, 1, 3, 0, all.first(1)}, {1, prompt, 7, 0, all.subspan(2)}, {1 + prompt, 1, 0, 0, all.subspan(1, 1)}};
      KvLayer kv{p.kv, p.kv_heads, p.key_dim, p.value_dim, block_size};
      kv.latent = p.latent;
      const size_t bytes = kv.key_offset(std::ssize(pages), 0, 0),
                   value_bytes = kv.value_offset(std::ssize(pages), 0, 0);
      struct Result {
        TestMatrix q;
        std::vector<std::byte> memory;
      };
      const auto run = [&](const auto& write) {
        Result result{q, std::vector<std::byte>(bytes + value_bytes, std::byte{0xa5})};
        TestMatrix own_k = k;
        kv.keys = result.memory.data();
        kv.values = result.memory.data() + (p.latent ? 0 : bytes);
        write(RopeWriteOp::Args{style, result.q.view(), own_k.view(), v.view(), angles.view(), kv, heads, slices, {}});
        return result;
      };
      const auto& rope = first_that_runs(RopeOp::cpu(), {}, test_hardware());
      const auto& kv_write = first_that_runs(KvWriteOp::cpu(), p, test_hardware());
      Result expected = run([&](const RopeWriteOp::Args& a) {
        if (rotary > 0) {
          rope.run({style, a.q, a.angles, heads, p.key_dim, rotary}, {});
          rope.run({style, a.k, a.angles, p.kv_heads, p.key_dim, rotary}, {});
        }
        kv_write.run({a.k, a.v, a.kv, slices, {}}, {});
      });
      const RopeWriteOp::Problem problem{p.kv,      style,       rows,   heads,   p.kv_heads,
                                         p.key_dim, p.value_dim, rotary, p.latent};
      for_kernels<RopeWriteOp>(RopeWriteOp::cpu(), problem, random.seed(), 0,
                               [&](const auto& kernel, ThreadPool& pool) {
                                 const Result got = run([&](const RopeWriteOp::Args& a) {
                                   kernel.run(a, {&pool, nullptr, nullptr, &test_hardware()});
                                 });
                                 return got.q.same_bits(expected.q) && got.memory == expected.memory ? 0 : 1;
                               });
    }
  }
}

// Each call continues behind the tokens that the calls before it found. Ties go to the lowest token.
TEST(Argmax, FindsTheNextLikeliest) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), none = -std::numeric_limits<float>::infinity();
  const std::vector<float> rows[] = {{1, 5, 2, 5, 3}, {nan, none, 7, 7, nan}};
  std::vector<float> data;
  for (const auto& row : rows) data.insert(data.end(), row.begin(), row.end());
  const Matrix logits{DType::F32, 2, 5, 5, reinterpret_cast<std::byte*>(data.data())};
  for (const auto* kernel : ArgmaxOp::cpu()) {
    std::vector<int32_t> found(8);
    for (int rank = 0; rank < 4; ++rank)
      kernel->run({logits, found.data() + 2 * rank, nullptr, found.data(), rank}, {});
    EXPECT_EQ(found, (std::vector<int32_t>{1, 2, 3, 3, 4, -1, 2, -1})) << kernel->name();
  }
}

// At each --isa level the SIMD kernels are those of that level or below, and the references always remain.
TEST(KernelLists, FollowTheInstructionSet) {
  for (const Hardware& hardware : hardware_levels()) {
    const bool simd = hardware.isa.has(Isa::Neon) || hardware.isa.has(Isa::Sse4);
    int able = 0;
    for (const Kernel<NormOp>* kernel : NormOp::cpu()) able += kernel->can_run({}, hardware);
    const int wide = hardware.isa.has(Isa::Avx2) + hardware.isa.has(Isa::Avx512);
    EXPECT_EQ(able, 1 + simd + wide) << to_string(hardware.isa);
  }
}

}  // namespace
}  // namespace millrace
