// Attention on a GPU against the CPU's reference, over the same cases, including the scores that are hard for a
// softmax.
#include <bit>
#include <limits>

#include "base/thread_pool.h"
#include "cuda/attention_batch.h"
#include "kernels/norm/norm.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

// Half-precision queries, weights and outputs each round once; errors of scores enter the softmax.
double tolerance(const AttentionCase& c, DType activations, Precision precision) {
  const double largest_score = std::max(1.0, 2.0 * c.q_scale * c.k_scale);
  const double kv_rounding = precision == Precision::Exact ? 0
                             : c.kv == DType::BF16         ? 0x1p-8
                             : c.kv == DType::F32          ? 0
                                                           : 0x1p-10;
  return 4 * largest_score * (1e-6 + rounding_of(activations) + kv_rounding);
}

void check_unified(const AttentionCase& c, DType activations, AttentionProblem problem, AttentionBatch& batch,
                   TestMatrix& expected, double allowed);

// Every kernel, or those whose names have this prefix.
void check(const AttentionCase& c, DType activations, Precision precision, AttentionBatch& batch, double allowed,
           std::string_view prefix = "") {
  round_to(batch.q(), activations);
  ThreadPool pool(2);
  TestMatrix expected(batch.rows(), batch.width());
  AttentionOp::reference()->run(batch.args(expected), {&pool, nullptr});
  AttentionProblem problem = batch.problem();
  problem.precision = precision;
  int ran = 0;
  for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
    if (!kernel->can_run(problem.bucketed(), gpu().hardware()) || !kernel->name().starts_with(prefix)) continue;
    SCOPED_TRACE(c.name + " " + std::string(name(c.kv)) + " " + std::string(kernel->name()) + " " +
                 std::string(name(activations)));
    TestMatrix out(batch.rows(), batch.width());
    GpuBatch on_device(batch, out, activations);
    EXPECT_LT(on_device.run(*kernel, problem.bucketed(), out).distance(expected), allowed);
    ++ran;
  }
  EXPECT_GT(ran, 0) << c.name;
  if (prefix.empty()) check_unified(c, activations, problem, batch, expected, allowed);
}

// The result is right for any calibrated maximum: a bad one only costs time.
void check_unified(const AttentionCase& c, DType activations, AttentionProblem problem, AttentionBatch& batch,
                   TestMatrix& expected, double allowed) {
  for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
    problem.calibrated = false;
    const bool exact = kernel->can_run(problem.bucketed(), gpu().hardware());
    problem.calibrated = true;
    if (exact || !kernel->can_run(problem.bucketed(), gpu().hardware())) continue;
    for (const float phi : {0.0f, 5.0f, -20.0f, 88.0f, 1e4f, -1e4f, 1e30f}) {
      SCOPED_TRACE(c.name + " " + std::string(name(c.kv)) + " " + std::string(kernel->name()) + " phi " +
                   std::to_string(phi));
      TestMatrix out(batch.rows(), batch.width());
      GpuBatch on_device(batch, out, activations);
      on_device.set_phi(std::vector<float>(static_cast<size_t>(c.heads), phi));
      EXPECT_LT(on_device.run(*kernel, problem.bucketed(), out).distance(expected), allowed);
    }
  }
}

AttentionCase with_sinks(AttentionCase c) {
  c.sinks = true;
  return c;
}

TEST(CudaAttention, EveryKernelMatchesTheReferenceOnEveryCase) {
  std::vector<AttentionCase> cases = attention_cases();
  cases.push_back({"prefill_more_tiles_than_blocks", DType::BF16, 32, 2, 128, 64, 0, 0, {{100, 600}}});
  cases.push_back({"prefill_more_tiles_than_blocks", DType::F16, 32, 2, 64, 16, 200, 0, {{0, 600}}});
  cases.push_back({"prefill_whole_chunk", DType::BF16, 8, 2, 128, 64, 0, 0, {{100, 512}}});
  cases.push_back(with_sinks({"prefill_sinks_of_many_tiles", DType::BF16, 64, 8, 64, 64, 128, 0, {{100, 600}}}));
  cases.push_back({"prefill_tiles_of_dim256", DType::BF16, 16, 2, 256, 64, 0, 0, {{100, 600}, {0, 70}}});
  cases.push_back({"prefill_window_of_dim256", DType::F16, 8, 1, 256, 16, 200, 30, {{333, 500}}});
  cases.push_back(with_sinks({"prefill_sinks_of_dim256", DType::BF16, 4, 4, 256, 48, 0, 0, {{0, 129}, {65, 64}}}));
  for (const AttentionCase& c : cases) {
    for (const DType activations : kPlainTypes) {
      const Precision precision = activations == DType::F32 ? Precision::Exact : Precision::Fast;
      Random random;
      SCOPED_TRACE("seed " + std::to_string(random.seed()));
      AttentionBatch batch(c, random);
      check(c, activations, precision, batch, tolerance(c, activations, precision));
    }
  }
}

// One sequence long enough for the widest blocks, with a partial last unit.
TEST(CudaAttention, LongContexts) {
  const std::vector<AttentionCase> cases{
      {"long", DType::BF16, 8, 2, 64, 16, 0, 0, {{5003, 1}}},
      {"long_pages", DType::BF16, 32, 8, 128, 64, 0, 0, {{4200, 1}}},
      {"long_window", DType::F16, 8, 2, 128, 64, 4001, 0, {{9005, 1}}},
      {"long_draft", DType::BF16, 8, 2, 128, 64, 0, 0, {{6000, 3}}},
      with_sinks({"long_sinks", DType::BF16, 64, 8, 64, 64, 0, 0, {{5003, 1}}}),
  };
  for (const AttentionCase& c : cases) {
    Random random;
    SCOPED_TRACE("seed " + std::to_string(random.seed()));
    AttentionBatch batch(c, random);
    check(c, c.kv, Precision::Fast, batch, tolerance(c, c.kv, Precision::Fast));
  }
}

// Unrelated lengths, the largest of which is `longest`.
std::vector<SliceCase> uneven_slices(int count, int longest, int rows) {
  std::vector<SliceCase> slices;
  for (int i = 0; i < count; ++i) slices.push_back({i == count / 2 ? longest : i * i * 13 % 400, rows});
  return slices;
}

// Pairs of sequence and KV head that would load the multiprocessors unevenly: persistent blocks share all of them.
TEST(CudaAttention, PairsThatDoNotFillTheDevice) {
  const std::vector<AttentionCase> cases{
      {"even", DType::BF16, 32, 8, 128, 64, 0, 0, uneven_slices(20, 3000, 1)},
      {"one_head_each", DType::F16, 32, 32, 64, 16, 0, 0, uneven_slices(5, 6000, 1)},
      {"window", DType::BF16, 32, 8, 128, 32, 900, 0, uneven_slices(19, 3500, 1)},
      with_sinks({"sinks", DType::BF16, 64, 8, 64, 64, 0, 0, uneven_slices(21, 3000, 1)}),
      {"softcap", DType::F16, 16, 8, 80, 16, 0, 20, uneven_slices(21, 4000, 1), 4, 4},
      {"several_each", DType::BF16, 16, 8, 128, 48, 0, 0, uneven_slices(41, 2500, 1)},
      {"drafts", DType::BF16, 32, 4, 96, 64, 0, 0, uneven_slices(20, 3000, 3)},
      {"wide_heads", DType::F16, 16, 8, 256, 64, 0, 0, uneven_slices(11, 5000, 1)},
  };
  for (const AttentionCase& c : cases) {
    Random random;
    SCOPED_TRACE("seed " + std::to_string(random.seed()));
    AttentionBatch batch(c, random);
    check(c, c.kv, Precision::Fast, batch, tolerance(c, c.kv, Precision::Fast));
  }
}

// More parts of a pair than one block adds up: groups of parts first, in an order that does not depend on arrivals.
TEST(CudaAttention, PartsOfManyBlocks) {
  const std::vector<AttentionCase> cases{
      {"group_of_one", DType::BF16, 4, 1, 128, 64, 0, 0, {{830, 1}}},
      {"group_of_one_wide", DType::BF16, 8, 1, 256, 64, 0, 0, {{415, 1}}},
      {"many_groups", DType::F16, 3, 1, 64, 16, 0, 0, {{17000, 1}}},
      {"gated", DType::BF16, 16, 2, 256, 64, 0, 0, {{20000, 1}}},
      {"two_tiles", DType::BF16, 32, 4, 96, 64, 0, 0, {{9000, 3}}},
      {"ranges_of_several_pairs", DType::BF16, 16, 8, 64, 64, 0, 0, uneven_slices(41, 20000, 1)},
      with_sinks({"sinks", DType::BF16, 8, 1, 64, 64, 0, 0, {{3000, 1}, {5003, 1}}}),
  };
  for (const AttentionCase& c : cases) {
    Random random;
    SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
    AttentionBatch batch(c, random);
    check(c, c.kv, Precision::Fast, batch, tolerance(c, c.kv, Precision::Fast), "cuda_decode");
    const AttentionProblem problem = batch.problem().bucketed();
    for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
      if (!kernel->can_run(problem, gpu().hardware()) || !kernel->name().starts_with("cuda_decode")) continue;
      TestMatrix out(batch.rows(), batch.width());
      const GpuBatch on_device(batch, out, c.kv);
      TestMatrix once = on_device.run(*kernel, problem, out);
      for (int again = 0; again < 3; ++again) EXPECT_EQ(on_device.run(*kernel, problem, out).distance(once), 0);
    }
  }
}

// The same with little work, for tools that slow it down a thousandfold.
TEST(CudaAttention, FewPairsThatBlocksShare) {
  std::vector<SliceCase> slices(20, {9, 1});
  slices[3].past = 1000;
  const AttentionCase c{"even", DType::BF16, 32, 8, 128, 64, 0, 0, slices};
  Random random;
  SCOPED_TRACE("seed " + std::to_string(random.seed()));
  AttentionBatch batch(c, random);
  check(c, c.kv, Precision::Fast, batch, tolerance(c, c.kv, Precision::Fast), "cuda_cluster");
  check(c, c.kv, Precision::Fast, batch, tolerance(c, c.kv, Precision::Fast), "cuda_decode");
}

// New tokens whose keys and values attention norms, rotates and stores itself, compared with separate kernels.
class FreshBatch {
 public:
  FreshBatch(AttentionBatch& batch, const AttentionCase& c, DType activations, Random& random, float loudness = 1)
      : case_(c),
        type_(activations),
        out_(batch.rows(), batch.width()),
        args_(batch.args(out_)),
        q_(batch.rows(), batch.width(), random),
        k_(batch.rows(), int64_t{c.kv_heads} * c.head_dim, random, loudness),
        v_(batch.rows(), int64_t{c.kv_heads} * c.head_dim, random, loudness),
        angles_(batch.rows(), c.head_dim),
        q_weights_(1, c.head_dim, random),
        k_weights_(1, c.head_dim, random) {
    for (int64_t row = 0; row < batch.rows(); ++row) {
      for (int64_t i = 0; i < c.head_dim / 2; ++i) {
        const float angle = 3 * random.normal();
        angles_.at(row, i) = std::cos(angle);
        angles_.at(row, c.head_dim / 2 + i) = std::sin(angle);
      }
    }
    poison_new_rows(batch.pool_bytes());
  }

  struct Result {
    TestMatrix out;
    std::vector<std::byte> keys, values;
  };

  Result run(const AttentionKernel& kernel, const AttentionProblem& problem, RopeStyle style, bool at_once,
             bool normed = false) {
    const std::vector<std::byte> zeros(kernel.workspace_bytes(problem, gpu().hardware()), std::byte{0});
    const GpuBytes keys(keys_), values(values_), slots(slots_), workspace(zeros), slices(slices_), pages(pages_);
    // Angles, one row after the other.
    std::vector<float> turns;
    for (int64_t row = 0; row < q_.view().rows; ++row) {
      for (int64_t i = 0; i < case_.head_dim; ++i) turns.push_back(angles_.at(row, i));
    }
    const GpuBytes angles(turns);
    const Matrix turn{DType::F32, q_.view().rows, case_.head_dim, case_.head_dim, angles.data()};
    const GpuCopy q(q_, type_), k(k_, type_), v(v_, type_), out(out_, type_);
    const GpuCopy q_weights(q_weights_, DType::F32), k_weights(k_weights_, DType::F32);
    const HeadNorms norms{q_weights.view().row<float>(0), k_weights.view().row<float>(0), 1e-5f};
    AttentionArgs args = args_;
    args.kv.keys = keys.data();
    args.kv.values = values.data();
    args.q = q.view();
    args.out = out.view();
    args.tables = {slices.as<SliceTables::Slice>(), pages.as<int32_t>(), stride_, nullptr, slots.as<int32_t>(), 1};
    if (at_once) {
      args.fresh = {k.view(), v.view(), turn, style, normed ? norms : HeadNorms{}};
    } else {
      const auto norm = [&](Matrix x, const float* weights) {
        const auto heads = static_cast<int>(x.cols / case_.head_dim);
        cuda_kernels().of<NormOp>().front()->run({NormKind::Rms, x, x, weights, nullptr, norms.epsilon, heads},
                                                 on_gpu());
      };
      if (normed) norm(q.view(), norms.q), norm(k.view(), norms.k);
      const RopeWriteOp::Args rope{style,   q.view(),   k.view(),       v.view(),   turn,
                                   args.kv, args.heads, args.sequences, args.tables};
      cuda_kernels().of<RopeWriteOp>().front()->run(rope, on_gpu());
    }
    kernel.run(args, on_gpu(workspace.data()));
    Result result{TestMatrix(out_), {}, {}};
    out.read(result.out);
    result.keys = keys.read();
    result.values = values.read();
    return result;
  }

 private:
  // Fills the cache rows of the new tokens with NaN, as in a page that was never used.
  void poison_new_rows(size_t bytes) {
    keys_.assign(args_.kv.keys, args_.kv.keys + bytes);
    values_.assign(args_.kv.values, args_.kv.values + bytes);
    for (const auto& s : args_.sequences) stride_ = std::max<int64_t>(stride_, static_cast<int64_t>(s.pages.size()));
    pages_.resize(static_cast<size_t>(stride_) * args_.sequences.size());
    for (size_t i = 0; i < args_.sequences.size(); ++i) {
      const SequenceSlice& s = args_.sequences[i];
      slices_.push_back({s.first_row, s.rows, s.past, s.past + s.rows});
      std::copy(s.pages.begin(), s.pages.end(), pages_.begin() + static_cast<int64_t>(i) * stride_);
      const int32_t page = s.pages[static_cast<size_t>(s.past / case_.block_size)], slot = s.past % case_.block_size;
      slots_.push_back(page * case_.block_size + slot);
      for (int head = 0; head < case_.kv_heads; ++head) {
        const size_t at = args_.kv.key_offset(page, head, slot), count = args_.kv.key_row_bytes();
        std::fill_n(keys_.begin() + static_cast<int64_t>(at), count, std::byte{0xff});
        std::fill_n(values_.begin() + static_cast<int64_t>(at), count, std::byte{0xff});
      }
    }
  }

  AttentionCase case_;
  DType type_;
  TestMatrix out_;
  AttentionArgs args_;
  TestMatrix q_, k_, v_, angles_, q_weights_, k_weights_;
  std::vector<std::byte> keys_, values_;
  std::vector<SliceTables::Slice> slices_;
  std::vector<int32_t> pages_, slots_;
  int64_t stride_ = 1;
};

// 16-bit numbers that differ by more than one rounding and `slack`; NaN equals NaN.
int64_t differing(DType type, const std::vector<std::byte>& a, const std::vector<std::byte>& b, double slack = 1e-5) {
  const auto number = [&](const std::vector<std::byte>& from, size_t i) {
    uint16_t bits;
    std::memcpy(&bits, &from[i], 2);
    return type == DType::BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  };
  int64_t count = 0;
  for (size_t i = 0; i + 1 < a.size(); i += 2) {
    const float x = number(a, i), y = number(b, i);
    const bool same = std::isnan(x) ? std::isnan(y) : std::abs(x - y) <= slack + 2 * rounding_of(type) * std::abs(x);
    count += same ? 0 : 1;
  }
  return count;
}

TEST(CudaAttention, StoresNewKeysItself) {
  int ran = 0;
  for (const AttentionCase& c :
       {AttentionCase{"one", DType::BF16, 8, 2, 128, 64, 0, 0, {{1000, 1}}},
        AttentionCase{"long", DType::BF16, 8, 2, 128, 64, 0, 0, {{4500, 1}}},
        AttentionCase{"first", DType::F16, 4, 4, 64, 16, 0, 0, {{0, 1}}},
        AttentionCase{"unit ends", DType::BF16, 6, 2, 64, 16, 0, 0, {{15, 1}, {16, 1}, {17, 1}, {31, 1}, {700, 1}}},
        AttentionCase{"window", DType::F16, 8, 1, 96, 32, 100, 0, {{300, 1}, {5, 1}}},
        AttentionCase{"eighty", DType::BF16, 6, 3, 80, 16, 0, 0, {{200, 1}, {47, 1}}},
        AttentionCase{"eight heads", DType::BF16, 32, 4, 128, 64, 0, 0, {{1024, 1}, {1030, 1}}},
        AttentionCase{"sixteen heads", DType::BF16, 16, 1, 128, 48, 0, 0, {{333, 1}, {95, 1}}},
        AttentionCase{"even", DType::BF16, 32, 8, 128, 64, 0, 0, uneven_slices(20, 3001, 1)},
        AttentionCase{"many", DType::BF16, 32, 8, 128, 64, 0, 0, {{900, 1}, {1023, 1}, {64, 1}, {2000, 1}, {3, 1}}}}) {
    for (const RopeStyle style : {RopeStyle::Halves, RopeStyle::Interleaved}) {
      Random random;
      SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
      AttentionBatch batch(c, random);
      FreshBatch fresh(batch, c, c.kv, random);
      const AttentionProblem problem = batch.problem();
      for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
        if (!kernel->can_run(problem, gpu().hardware()) || !kernel->takes_along(problem, gpu().hardware())) continue;
        SCOPED_TRACE(kernel->name());
        for (const bool normed : {false, true}) {
          if (normed && !std::has_single_bit(static_cast<unsigned>(c.head_dim))) continue;
          SCOPED_TRACE(normed ? "with norms" : "without norms");
          auto apart = fresh.run(*kernel, problem, style, false, normed);
          auto at_once = fresh.run(*kernel, problem, style, true, normed);
          EXPECT_LE(at_once.out.distance(apart.out), 4 * rounding_of(c.kv));
          EXPECT_TRUE(at_once.out.spare_is_untouched());
          // Norms add up in different orders: a number before the rotation, about 10 at most, may round the other way.
          const double slack = normed ? 20 * rounding_of(c.kv) : 1e-5;
          EXPECT_EQ(differing(c.kv, at_once.keys, apart.keys, slack), 0);
          EXPECT_EQ(differing(c.kv, at_once.values, apart.values), 0);
          ++ran;
        }
      }
    }
  }
  EXPECT_GT(ran, 0);
}

// Numbers of a cache in 8 bits that differ by more than one step of their row or format; NaN equals NaN.
int64_t differing_steps(DType kv, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const DTypeInfo& format = info(kv);
  const auto block = static_cast<int64_t>(kv == kFp8 ? 1 : format.block);
  int64_t count = 0;
  for (size_t at = 0; at + static_cast<size_t>(format.bytes) <= a.size(); at += static_cast<size_t>(format.bytes)) {
    float x[32], y[32], largest = 0;
    dequantize_row(kv, &a[at], x, block);
    dequantize_row(kv, &b[at], y, block);
    for (int64_t i = 0; i < block; ++i) largest = std::max(largest, std::abs(x[i]));
    const float step = kv == kFp8 ? largest / 8 + 0x1p-9f : largest / 100 + 1e-6f;
    for (int64_t i = 0; i < block; ++i) {
      const bool same = std::isnan(x[i]) ? std::isnan(y[i]) : std::abs(x[i] - y[i]) <= step;
      count += same ? 0 : 1;
    }
  }
  return count;
}

TEST(CudaAttention, StoresNewKeysInEightBits) {
  int ran = 0;
  for (const DType kv : {DType::Q8_0, kFp8}) {
    for (const AttentionCase& c :
         {AttentionCase{"one", kv, 8, 2, 128, 64, 0, 0, {{1000, 1}}},
          AttentionCase{"long", kv, 8, 2, 128, 64, 0, 0, {{4500, 1}}},
          AttentionCase{"first", kv, 4, 4, 64, 16, 0, 0, {{0, 1}}},
          AttentionCase{"unit ends", kv, 6, 2, 64, 16, 0, 0, {{15, 1}, {16, 1}, {17, 1}, {31, 1}, {700, 1}}},
          AttentionCase{"window", kv, 8, 1, 96, 32, 100, 0, {{300, 1}, {5, 1}}},
          AttentionCase{"even", kv, 32, 8, 128, 64, 0, 0, uneven_slices(20, 3001, 1)}}) {
      Random random;
      SCOPED_TRACE(c.name + " " + std::string(name(kv)) + " seed " + std::to_string(random.seed()));
      AttentionBatch batch(c, random);
      FreshBatch fresh(batch, c, DType::BF16, random);
      const AttentionProblem problem = batch.problem();
      for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
        if (!kernel->can_run(problem, gpu().hardware()) || !kernel->takes_along(problem, gpu().hardware())) continue;
        SCOPED_TRACE(kernel->name());
        const bool normed = std::has_single_bit(static_cast<unsigned>(c.head_dim));
        auto apart = fresh.run(*kernel, problem, RopeStyle::Halves, false, normed);
        auto at_once = fresh.run(*kernel, problem, RopeStyle::Halves, true, normed);
        EXPECT_LE(at_once.out.distance(apart.out), 0.02);
        EXPECT_TRUE(at_once.out.spare_is_untouched());
        EXPECT_EQ(differing_steps(kv, at_once.keys, apart.keys), 0);
        EXPECT_EQ(differing_steps(kv, at_once.values, apart.values), 0);
        ++ran;
      }
    }
  }
  EXPECT_GT(ran, 0);
}

// An f16 cache with bf16 activations: values out of range saturate, as rope_write stores them.
TEST(CudaAttention, StoresNewKeysWithinTheRangeOfF16) {
  const AttentionCase c{"loud", DType::F16, 4, 2, 64, 16, 0, 0, {{100, 1}, {7, 1}}};
  int ran = 0;
  Random random;
  SCOPED_TRACE("seed " + std::to_string(random.seed()));
  AttentionBatch batch(c, random);
  FreshBatch fresh(batch, c, DType::BF16, random, 1e6f);
  const AttentionProblem problem = batch.problem();
  for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
    if (!kernel->can_run(problem, gpu().hardware()) || !kernel->takes_along(problem, gpu().hardware())) continue;
    SCOPED_TRACE(kernel->name());
    const auto apart = fresh.run(*kernel, problem, RopeStyle::Halves, false);
    auto at_once = fresh.run(*kernel, problem, RopeStyle::Halves, true);
    EXPECT_EQ(differing(c.kv, at_once.keys, apart.keys), 0);
    EXPECT_EQ(differing(c.kv, at_once.values, apart.values), 0);
    for (int64_t i = 0; i < batch.rows() * batch.width(); ++i)
      ASSERT_TRUE(std::isfinite(at_once.out.at(i / batch.width(), i % batch.width())));
    ++ran;
  }
  EXPECT_GT(ran, 0);
}

TEST(CudaAttention, SlicesThatBeginBehindOthers) {
  const AttentionCase c{"behind", DType::BF16, 8, 2, 64, 16, 0, 0, {{90, 1}, {7, 1}, {200, 1}, {0, 40}, {33, 5}}};
  constexpr size_t kSkipped = 3;
  Random random;
  SCOPED_TRACE("seed " + std::to_string(random.seed()));
  AttentionBatch batch(c, random);
  round_to(batch.q(), DType::BF16);
  ThreadPool pool(2);
  TestMatrix expected(batch.rows(), batch.width());
  AttentionOp::reference()->run(batch.args(expected), {&pool, nullptr});
  AttentionProblem problem = batch.problem();
  problem.sequences -= kSkipped;
  problem.rows -= kSkipped;
  for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
    if (!kernel->can_run(problem.bucketed(), gpu().hardware())) continue;
    SCOPED_TRACE(kernel->name());
    TestMatrix out(batch.rows(), batch.width());
    GpuBatch on_device(batch, out, DType::BF16);
    on_device.skip(kSkipped);
    TestMatrix got = on_device.run(*kernel, problem.bucketed(), out);
    for (int64_t row = 0; row < static_cast<int64_t>(kSkipped); ++row) {
      for (int64_t i = 0; i < batch.width(); ++i) {
        EXPECT_TRUE(std::isnan(got.at(row, i))) << "row " << row << " is another's";
        got.at(row, i) = expected.at(row, i);
      }
    }
    EXPECT_LT(got.distance(expected), tolerance(c, DType::BF16, Precision::Fast));
  }
}

TEST(CudaAttention, SurvivesAttacksOnTheSoftmax) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<std::string, std::function<float(int, int)>>> attacks{
      {"all equal", [](int, int) { return 3.0f; }},
      {"all -1e4", [](int, int) { return -1e4f; }},
      {"all +1e4", [](int, int) { return 1e4f; }},
      {"+-1e4", [](int p, int) { return p % 3 == 0 ? 1e4f : -1e4f; }},
      {"all -infinity", [](int, int) { return -kInfinite; }},
      {"-infinity but one", [](int p, int) { return p == 5 ? 2.0f : -kInfinite; }},
      {"all beyond f32", [](int, int) { return 3e38f; }},
      {"spike at the start", [](int p, int) { return p == 0 ? 1e4f : 0.0f; }},
      {"spike at the end", [](int p, int length) { return p == length - 1 ? 1e4f : 0.0f; }},
      {"rising", [](int p, int) { return 7.0f * static_cast<float>(p); }},
      {"falling", [](int p, int) { return -7.0f * static_cast<float>(p); }},
      {"steps of the slack", [](int p, int) { return 5.5f * static_cast<float>(p / 64); }},
  };
  for (const AttentionCase& c : {AttentionCase{"decode", DType::F32, 6, 2, 64, 16, 0, 0, {{700, 1}}},
                                 AttentionCase{"decode", DType::F16, 6, 2, 64, 32, 0, 0, {{700, 1}}},
                                 AttentionCase{"decode", DType::BF16, 6, 2, 128, 64, 0, 0, {{700, 1}}},
                                 AttentionCase{"prefill", DType::BF16, 4, 2, 64, 64, 0, 0, {{100, 150}}},
                                 AttentionCase{"tiles", DType::BF16, 32, 1, 64, 64, 0, 0, {{20, 600}}},
                                 AttentionCase{"wide_heads", DType::BF16, 4, 2, 256, 64, 0, 0, {{100, 150}}},
                                 AttentionCase{"decode", DType::Q8_0, 6, 2, 128, 64, 0, 0, {{700, 1}}},
                                 AttentionCase{"prefill", DType::Q8_0, 4, 2, 64, 64, 0, 0, {{100, 150}}},
                                 AttentionCase{"decode", kFp8, 6, 2, 64, 64, 0, 0, {{700, 1}}},
                                 AttentionCase{"prefill", kFp8, 4, 2, 128, 64, 0, 0, {{100, 150}}},
                                 AttentionCase{"chunk", DType::BF16, 4, 2, 128, 64, 0, 0, {{0, 512}}},
                                 AttentionCase{"window", DType::F16, 4, 2, 64, 16, 90, 0, {{300, 1}, {0, 130}}},
                                 AttentionCase{"softcap", DType::F16, 4, 2, 64, 16, 0, 30, {{300, 1}, {0, 130}}}}) {
    for (const auto& [attack, score] : attacks) {
      Random random;
      SCOPED_TRACE(attack + " seed " + std::to_string(random.seed()));
      AttentionBatch batch(c, random);
      const float q = 64, scale = std::sqrt(float(c.head_dim)) / q;
      for (int64_t row = 0; row < batch.rows(); ++row) {
        for (int64_t i = 0; i < batch.width(); ++i) batch.q().at(row, i) = i % c.head_dim == 0 ? q : 0.0f;
      }
      const auto& make_score = score;
      batch.fill(
          [&](int slice, int position, int, int i) {
            const auto& s = c.slices[static_cast<size_t>(slice)];
            return i == 0 ? make_score(position, s.past + s.rows) * scale : 0.0f;
          },
          [&](int, int, int, int) { return random.normal(); });
      const DType activations = is_quantized(c.kv) ? DType::BF16 : c.kv;
      check(c, activations, Precision::Fast, batch, 2e-2);  // false for NaN
    }
  }
}

// Large weights from a unified maximum, times large values.
TEST(CudaAttention, LoudValuesUnderAUnifiedMaximum) {
  for (const int head_dim : {64, 128}) {
    const AttentionCase c{"loud", DType::BF16, 6, 2, head_dim, 64, 0, 0, {{700, 1}, {40, 1}}};
    Random random;
    SCOPED_TRACE("seed " + std::to_string(random.seed()));
    AttentionBatch batch(c, random);
    const float q = 64, score = 20, key = score * std::sqrt(float(head_dim)) / q;
    for (int64_t row = 0; row < batch.rows(); ++row) {
      for (int64_t i = 0; i < batch.width(); ++i) batch.q().at(row, i) = i % head_dim == 0 ? q : 0.0f;
    }
    batch.fill([&](int, int, int, int i) { return i == 0 ? key : 0.0f; },
               [&](int, int, int, int) { return 1e30f * random.normal(); });
    check(c, DType::BF16, Precision::Fast, batch, 2e-2);
  }
}

}  // namespace
}  // namespace millrace
