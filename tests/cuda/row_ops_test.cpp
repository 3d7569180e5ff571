// The small ops on a GPU against the CPU's references, over the same cases, for every activation format.
#include "cuda/support.h"
#include "kernels/kernel_set.h"
#include "kernels/linear_cases.h"
#include "kernels/row_op_cases.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

constexpr double kTolerance = 1e-6;  // a few f32 roundings, and fused multiply-adds that the CPU does not use

template <class Op, class Body>
void for_gpu_kernels(const KernelList<Op>& kernels, const typename Op::Problem& problem, uint32_t seed, Body body) {
  int able = 0;
  for (const Kernel<Op>* kernel : kernels) {
    if (!kernel->can_run(problem, gpu().hardware())) continue;
    SCOPED_TRACE(to_string(problem) + " " + std::string(kernel->name()) + " seed " + std::to_string(seed));
    EXPECT_GT(kernel->estimate_us(problem, gpu().hardware()), 0);
    body(*kernel);
    ++able;
  }
  EXPECT_GT(able, 0) << to_string(problem);
}

TEST(CudaNorm, MatchesTheReference) {
  for (const NormCase& c : norm_cases()) {
    for (const DType dtype : kPlainTypes) {
      Random random;
      const auto& p = c.problem;
      TestMatrix x(p.rows, p.cols, random), weight(1, p.cols, random), bias(1, p.cols, random);
      const TestMatrix before = p.accumulate ? TestMatrix(p.rows, p.cols, random) : TestMatrix(p.rows, p.cols);
      TestMatrix expected = before;
      for (int64_t i = 0; i < p.rows * p.cols; ++i) x.at(i / p.cols, i % p.cols) += c.offset;
      const int groups = static_cast<int>(p.groups);
      const auto second = [&](const float* weights) { return c.second_from > 0 ? weights + p.cols / groups : nullptr; };
      NormOp::reference()->run({p.kind, x.view(), expected.view(), c.weighted ? &weight.at(0, 0) : nullptr,
                                c.biased ? &bias.at(0, 0) : nullptr, 1e-5f, groups, p.accumulate, c.weights_per_group,
                                second(&weight.at(0, 0)), c.second_from},
                               {});
      const GpuBytes gpu_weight(&weight.at(0, 0), size_t(p.cols) * 4), gpu_bias(&bias.at(0, 0), size_t(p.cols) * 4);
      for_gpu_kernels<NormOp>(cuda_kernels().of<NormOp>(), p, random.seed(), [&](const auto& kernel) {
        TestMatrix out = before;
        const GpuCopy gpu_x(x), gpu_out(out, dtype);
        kernel.run({p.kind, gpu_x.view(), gpu_out.view(), c.weighted ? gpu_weight.as<float>() : nullptr,
                    c.biased ? gpu_bias.as<float>() : nullptr, 1e-5f, groups, p.accumulate, c.weights_per_group,
                    second(gpu_weight.as<float>()), c.second_from},
                   on_gpu());
        gpu_out.read(out);
        EXPECT_TRUE(out.spare_is_untouched());
        const double roundings = p.accumulate ? 2 : 1;  // of what is added to, and of the sum
        EXPECT_LE(out.distance(expected), kTolerance * (1 + std::abs(c.offset)) + roundings * rounding_of(dtype));
        if (dtype != DType::F32 || p.accumulate) return;
        kernel.run({p.kind, gpu_x.view(), gpu_x.view(), c.weighted ? gpu_weight.as<float>() : nullptr,
                    c.biased ? gpu_bias.as<float>() : nullptr, 1e-5f, groups, false, c.weights_per_group,
                    second(gpu_weight.as<float>()), c.second_from},
                   on_gpu());
        TestMatrix same = x;
        gpu_x.read(same);
        EXPECT_TRUE(same.same_bits(out)) << "in place";
      });
    }
  }
}

TEST(CudaActivation, MatchesTheReference) {
  for (const ActivationOp::Problem& p : activation_cases()) {
    for (const DType dtype : kPlainTypes) {
      Random random;
      TestMatrix x(p.rows, p.cols, random, 3), gate(p.rows, p.cols, random), expected(p.rows, p.cols);
      round_to(x, dtype);
      round_to(gate, dtype);
      const Matrix gate_view = gate.view();
      ActivationOp::reference()->run({p.kind, x.view(), p.gated ? &gate_view : nullptr, expected.view(), kTestClamp},
                                     {});
      for_gpu_kernels<ActivationOp>(cuda_kernels().of<ActivationOp>(), p, random.seed(), [&](const auto& kernel) {
        TestMatrix out(p.rows, p.cols);
        const GpuCopy gpu_x(x, dtype), gpu_gate(gate, dtype), gpu_out(out, dtype);
        const Matrix gpu_gate_view = gpu_gate.view();
        kernel.run({p.kind, gpu_x.view(), p.gated ? &gpu_gate_view : nullptr, gpu_out.view(), kTestClamp}, on_gpu());
        gpu_out.read(out);
        EXPECT_TRUE(out.spare_is_untouched());
        EXPECT_LE(out.distance(expected), kTolerance + rounding_of(dtype));
      });
    }
  }
}

TEST(CudaElementwise, MatchesTheReference) {
  for (const ElementwiseOp::Problem& p : elementwise_cases()) {
    for (const DType dtype : kPlainTypes) {
      Random random;
      const bool gather = p.kind == Elementwise::Gather;
      TestMatrix a(gather ? p.rows + 5 : p.rows, p.cols, random, 20), b(p.rows, p.cols, random);
      TestMatrix expected(p.rows, p.cols);
      round_to(b, dtype);
      std::vector<int32_t> ids;
      for (int64_t i = 0; i < p.rows; ++i) ids.push_back(random.below(static_cast<int>(p.rows) + 5));
      ElementwiseOp::reference()->run({p.kind, a.view(), b.view(), expected.view(), 30.0f, ids, 7}, {});
      const GpuBytes gpu_ids(ids);
      for_gpu_kernels<ElementwiseOp>(cuda_kernels().of<ElementwiseOp>(), p, random.seed(), [&](const auto& kernel) {
        TestMatrix out(p.rows, p.cols);
        const GpuCopy gpu_a(a), gpu_b(b, dtype), gpu_out(out, dtype);
        kernel.run({p.kind, gpu_a.view(), gpu_b.view(), gpu_out.view(), 30.0f, {gpu_ids.as<int32_t>(), ids.size()}, 7},
                   on_gpu());
        gpu_out.read(out);
        EXPECT_TRUE(out.spare_is_untouched());
        EXPECT_LE(out.distance(expected), kTolerance + rounding_of(dtype));
      });
    }
  }
}

TEST(CudaEmbedding, MatchesTheReference) {
  for (const EmbeddingOp::Problem& p : embedding_cases()) {
    Random random;
    std::mt19937 engine(random.seed());
    constexpr int64_t kEntries = 50;
    const auto table = random_weights(p.format, kEntries, p.cols, engine);
    const GpuBytes gpu_table(table);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < p.rows; ++i) ids.push_back(random.below(kEntries));
    const GpuBytes gpu_ids(ids);
    for (const bool accumulate : {false, true}) {
      TestMatrix base(p.rows, p.cols, random), blank(p.rows, p.cols);
      TestMatrix expected = accumulate ? base : blank;
      EmbeddingOp::reference()->run(
          {{p.format, kEntries, p.cols, table.data()}, ids, 1.5f, accumulate, expected.view()}, {});
      for_gpu_kernels<EmbeddingOp>(cuda_kernels().of<EmbeddingOp>(), p, random.seed(), [&](const auto& kernel) {
        TestMatrix out = accumulate ? base : blank;
        const GpuCopy gpu_out(out);
        kernel.run({{p.format, kEntries, p.cols, gpu_table.data()},
                    {gpu_ids.as<int32_t>(), ids.size()},
                    1.5f,
                    accumulate,
                    gpu_out.view()},
                   on_gpu());
        gpu_out.read(out);
        EXPECT_TRUE(out.spare_is_untouched());
        EXPECT_LE(out.distance(expected), kTolerance);
      });
    }
  }
}

TEST(CudaRope, MatchesTheReference) {
  for (const RopeOp::Problem& p : rope_cases()) {
    for (const DType dtype : kPlainTypes) {
      Random random;
      TestMatrix x(p.rows, int64_t{p.heads} * p.head_dim, random), angles(p.rows, p.rotary_dim, random);
      round_to(x, dtype);
      TestMatrix expected = x;
      RopeOp::reference()->run({p.style, expected.view(), angles.view(), p.heads, p.head_dim, p.rotary_dim}, {});
      for_gpu_kernels<RopeOp>(cuda_kernels().of<RopeOp>(), p, random.seed(), [&](const auto& kernel) {
        TestMatrix out = x;
        const GpuCopy gpu_out(out, dtype), gpu_angles(angles);
        kernel.run({p.style, gpu_out.view(), gpu_angles.view(), p.heads, p.head_dim, p.rotary_dim}, on_gpu());
        gpu_out.read(out);
        EXPECT_TRUE(out.spare_is_untouched());
        EXPECT_LE(out.distance(expected), kTolerance + rounding_of(dtype));
      });
    }
  }
}

TEST(CudaRopeAngles, MatchTheCpu) {
  Random random;
  constexpr int kRows = 37, kHalf = 24;
  std::vector<float> usual, extended;
  std::vector<int32_t> positions, horizons;
  for (int i = 0; i < kHalf; ++i) {
    usual.push_back(std::pow(10000.0f, -float(i) / kHalf));
    extended.push_back(usual.back() / 7);
  }
  for (int i = 0; i < kRows; ++i) {
    positions.push_back(random.below(100000));
    horizons.push_back(i % 2 == 0 ? 100 : 5000);
  }
  TestMatrix expected(kRows, 2 * kHalf), out(kRows, 2 * kHalf);
  RopeAnglesOp::cpu()[0]->run(
      {positions, {usual.data(), 1.1f}, 4096, {extended.data(), 0.9f}, horizons, expected.view()}, {});
  const GpuBytes gpu_usual(usual), gpu_extended(extended), gpu_positions(positions), gpu_horizons(horizons);
  const GpuCopy gpu_out(out);
  for (const auto* kernel : cuda_kernels().of<RopeAnglesOp>()) {
    kernel->run({{gpu_positions.as<int32_t>(), kRows},
                 {gpu_usual.as<float>(), 1.1f},
                 4096,
                 {gpu_extended.as<float>(), 0.9f},
                 {gpu_horizons.as<int32_t>(), kRows},
                 gpu_out.view()},
                on_gpu());
    gpu_out.read(out);
    EXPECT_TRUE(out.spare_is_untouched());
    EXPECT_LE(out.distance(expected), kTolerance) << "seed " << random.seed();
  }
}

// q is rotated in place, k and v are stored in their pages as by the CPU's rope and kv_write, and nothing else changes.
// Some values are NaN; they are stored as numbers.
TEST(CudaRopeWrite, MatchesTheReferences) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  struct Types {
    DType source, kv;
  };
  for (const auto [source, kv_type] : {Types{DType::F32, DType::F32},
                                       {DType::F32, DType::F16},
                                       {DType::F32, DType::BF16},
                                       {DType::F32, DType::Q8_0},
                                       {DType::F32, kFp8},
                                       {DType::BF16, kFp8},
                                       {DType::F16, DType::F16},
                                       {DType::BF16, DType::BF16}}) {
    for (const RopeOp::Problem& shape : rope_cases()) {
      if (!is_kv_dtype(kv_type, shape.head_dim)) continue;
      Random random;
      const int rows = static_cast<int>(shape.rows), kv_heads = shape.heads, block_size = 16, dim = shape.head_dim;
      const int64_t width = int64_t{shape.heads} * dim;
      TestMatrix q(rows, width, random), k(rows, width, random), v(rows, width, random);
      for (const float x :
           {std::nanf(""), kInfinity, -kInfinity, std::numeric_limits<float>::max(), 65520.0f, 3.3961e38f})
        v.at(random.below(rows), random.below(static_cast<int>(width))) = x;
      for (TestMatrix* x : {&q, &k, &v}) round_to(*x, source);
      TestMatrix angles(rows, shape.rotary_dim, random);
      std::vector<int32_t> pages(static_cast<size_t>((rows + 7) / block_size + 3));
      for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
      random.shuffle(pages);
      const SequenceSlice slice{0, rows, 7, 0, pages};
      std::vector<int32_t> slots;
      for (int i = 0; i < rows; ++i)
        slots.push_back(pages[static_cast<size_t>((7 + i) / block_size)] * block_size + (7 + i) % block_size);
      KvLayer kv{kv_type, kv_heads, dim, dim, block_size};
      const size_t bytes = pages.size() * size_t(kv_heads) * block_size * kv.key_row_bytes();
      std::vector<std::byte> keys(bytes, std::byte{0xa5}), values = keys;
      TestMatrix q_expected = q, k_expected = k;
      RopeOp::reference()->run({shape.style, q_expected.view(), angles.view(), shape.heads, dim, shape.rotary_dim}, {});
      RopeOp::reference()->run({shape.style, k_expected.view(), angles.view(), kv_heads, dim, shape.rotary_dim}, {});
      const GpuBytes gpu_keys(keys), gpu_values(values), gpu_slots(slots);
      kv.keys = keys.data();
      kv.values = values.data();
      KvWriteOp::reference()->run({k_expected.view(), v.view(), kv, {&slice, 1}}, {});
      std::vector<float> turns;  // row after row, as the pass keeps them
      for (int64_t i = 0; i < rows * shape.rotary_dim; ++i)
        turns.push_back(angles.at(i / shape.rotary_dim, i % shape.rotary_dim));
      const GpuBytes gpu_angles(turns);
      const RopeWriteOp::Problem problem{kv_type, shape.style, rows, shape.heads, kv_heads, dim, dim, shape.rotary_dim};
      for_gpu_kernels<RopeWriteOp>(cuda_kernels().of<RopeWriteOp>(), problem, random.seed(), [&](const auto& kernel) {
        const GpuCopy gpu_q(q, source), gpu_k(k, source), gpu_v(v, source);
        const Matrix gpu_turns{DType::F32, rows, shape.rotary_dim, shape.rotary_dim, gpu_angles.data()};
        kv.keys = gpu_keys.data();
        kv.values = gpu_values.data();
        RopeWriteOp::Args args{shape.style, gpu_q.view(), gpu_k.view(), gpu_v.view(), gpu_turns, kv, shape.heads};
        args.tables.row_slots = gpu_slots.as<int32_t>();
        kernel.run(args, on_gpu());
        TestMatrix q_out = q;
        gpu_q.read(q_out);
        EXPECT_TRUE(q_out.spare_is_untouched());
        EXPECT_LE(q_out.distance(q_expected), kTolerance + rounding_of(source));
        EXPECT_EQ(gpu_values.read(), values) << "values";
        // The rotation rounds slightly differently, so keys are compared as numbers.
        const auto gpu_bytes = gpu_keys.read();
        double error = 0, norm = 0;
        std::vector<float> a(static_cast<size_t>(dim)), b(a.size());
        for (size_t at = 0; at < bytes; at += kv.key_row_bytes()) {
          const bool untouched = std::all_of(keys.begin() + at, keys.begin() + at + kv.key_row_bytes(),
                                             [](std::byte x) { return x == std::byte{0xa5}; });
          if (untouched) {
            EXPECT_TRUE(std::equal(keys.begin() + at, keys.begin() + at + kv.key_row_bytes(), gpu_bytes.begin() + at));
            continue;
          }
          dequantize_row(kv_type, keys.data() + at, a.data(), dim);
          dequantize_row(kv_type, gpu_bytes.data() + at, b.data(), dim);
          for (size_t i = 0; i < a.size(); ++i) error += std::pow(a[i] - b[i], 2), norm += std::pow(a[i], 2);
        }
        EXPECT_LE(std::sqrt(error / norm), kv_type == DType::F32 ? kTolerance : kv_type == kFp8 ? 1e-2 : 2e-3);
      });
    }
  }
}

TEST(CudaArgmax, FindsTheFirstOfTheLargest) {
  for (const int64_t cols : {1, 31, 1000, 49152}) {
    Random random;
    constexpr int64_t kRows = 5;
    TestMatrix logits(kRows, cols, random);
    for (int64_t i = 0; i < cols; ++i) {
      logits.at(1, i) = 3;                                        // ties
      logits.at(2, i) = std::numeric_limits<float>::quiet_NaN();  // no token
      logits.at(3, i) = -std::numeric_limits<float>::infinity();  // no token
      if (i % 2 == 0) logits.at(4, i) = std::numeric_limits<float>::quiet_NaN();
    }
    std::vector<int32_t> expected(kRows), ids(kRows, 77);
    ArgmaxOp::reference()->run({logits.view(), expected.data()}, {});
    const GpuCopy gpu_logits(logits);
    const GpuBytes gpu_ids(ids);
    for (const auto* kernel : cuda_kernels().of<ArgmaxOp>()) {
      kernel->run({gpu_logits.view(), gpu_ids.as<int32_t>()}, on_gpu());
      const auto bytes = gpu_ids.read();
      std::memcpy(ids.data(), bytes.data(), bytes.size());
      EXPECT_EQ(ids, expected) << kernel->name() << " seed " << random.seed();
    }
  }
}

// Each call continues behind the tokens that the calls before it found.
TEST(CudaArgmax, FindsTheNextLikeliest) {
  for (const int64_t cols : {2, 31, 49152}) {
    Random random;
    constexpr int64_t kRows = 4;
    constexpr int kRanks = 1 + ArgmaxOp::kMostSkipped;
    TestMatrix logits(kRows, cols, random);
    for (int64_t i = 0; i < cols; ++i) logits.at(1, i) = 3;  // ties
    std::vector<int32_t> expected(kRows * kRanks), ids(kRows * kRanks, 77);
    const auto rank = [&](const auto& kernel, const Matrix& view, int32_t* to, int i, const auto& where) {
      kernel->run({view, to + i * kRows, nullptr, to, i}, where);
    };
    for (int i = 0; i < kRanks; ++i) rank(ArgmaxOp::reference(), logits.view(), expected.data(), i, Executor{});
    const GpuCopy gpu_logits(logits);
    const GpuBytes gpu_ids(ids);
    for (const auto* kernel : cuda_kernels().of<ArgmaxOp>()) {
      for (int i = 0; i < kRanks; ++i) rank(kernel, gpu_logits.view(), gpu_ids.as<int32_t>(), i, on_gpu());
      const auto bytes = gpu_ids.read();
      std::memcpy(ids.data(), bytes.data(), bytes.size());
      EXPECT_EQ(ids, expected) << kernel->name() << " seed " << random.seed();
    }
  }
}

}  // namespace
}  // namespace millrace
