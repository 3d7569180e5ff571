#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "attention_cases.h"
#include "base/thread_pool.h"

namespace millrace {
namespace {

// Scores are sums of head_dim products: their rounding error grows with their size and enters the weights. Kernels that
// are not exact round queries and weights to f16 or bf16; one sums scores in f16.
double tolerance(const AttentionCase& c, const AttentionKernel& kernel, bool exact) {
  const double largest_score = 4.0 * c.q_scale * c.k_scale;
  const bool bf16 = kernel.name() == "flash_bf16" || kernel.name() == "flash_amx";
  const double fp16 = 0x1p-11 * std::sqrt(std::max(1.0, c.head_dim / 64.0));
  const double rounding = exact ? 5e-7 : bf16 ? 0x1p-9 : kernel.name() == "flash_fp16" ? fp16 : 0x1p-12;
  return 4 * rounding * std::max(1.0, largest_score / 2);
}

class Runner {
 public:
  Runner(AttentionBatch& batch, int threads)
      : batch_(batch), pool_(threads), hardware_(test_hardware()), expected_(fresh()) {
    hardware_.threads = threads;
    AttentionOp::reference()->run(batch.args(expected_), {&pool_, nullptr});
  }

  bool can_run(const AttentionKernel& kernel) const { return kernel.can_run(batch_.problem(), hardware_); }
  bool is_exact(const AttentionKernel& kernel) const {
    AttentionProblem problem = batch_.problem();
    problem.precision = Precision::Exact;
    return kernel.can_run(problem, hardware_);
  }
  TestMatrix& expected() { return expected_; }

  TestMatrix run(const AttentionKernel& kernel, const float* phi = nullptr) {
    // The workspace is poisoned, with a guard behind it.
    const size_t bytes = kernel.workspace_bytes(batch_.problem(), hardware_);
    std::vector<std::byte> workspace(bytes + kGuard, std::byte{0xff});
    TestMatrix out = fresh();
    AttentionArgs args = batch_.args(out);
    args.phi = phi;
    kernel.run(args, {&pool_, workspace.data()});
    for (size_t i = bytes; i < workspace.size(); ++i)
      EXPECT_EQ(workspace[i], std::byte{0xff}) << "beyond the workspace";
    EXPECT_TRUE(out.spare_is_untouched());
    return out;
  }

 private:
  static constexpr size_t kGuard = 4096;
  TestMatrix fresh() const { return TestMatrix(batch_.rows(), batch_.out_width()); }
  AttentionBatch& batch_;
  ThreadPool pool_;
  Hardware hardware_;
  TestMatrix expected_;
};

// ThreadSanitizer sees one instruction set of each kernel: threads share the work alike with all of them.
KernelList<AttentionOp> tested_kernels() {
  KernelList<AttentionOp> kernels = AttentionOp::cpu();
#ifdef __SANITIZE_THREAD__
  const auto is_weaker = [](const AttentionKernel* kernel) {
    const std::string_view name = kernel->name();
    return test_hardware().isa.has(Isa::Avx512) && (name.ends_with("_sse4") || name.ends_with("_avx2"));
  };
  std::erase_if(kernels, is_weaker);
#endif
  return kernels;
}

#ifdef MILLRACE_SANITIZED
constexpr int kThreadCounts[] = {1, 3};
#else
constexpr int kThreadCounts[] = {1, 2, 3, 7};
#endif

TEST(Attention, EveryKernelMatchesTheReferenceOnEveryCase) {
  std::vector<AttentionCase> cases = attention_cases();
  for (const AttentionCase& c : uneven_attention_cases()) {
    if (c.latent) cases.push_back(c);
  }
  for (const AttentionCase& c : cases) {
    Random random;
    AttentionBatch batch(c, random);
    for (const int threads : kThreadCounts) {
      Runner runner(batch, threads);
      for (const AttentionKernel* kernel : tested_kernels()) {
        if (!runner.can_run(*kernel)) continue;
        SCOPED_TRACE(c.name + " " + std::string(kernel->name()) + " threads " + std::to_string(threads) + " seed " +
                     std::to_string(random.seed()));
        EXPECT_LT(runner.run(*kernel).distance(runner.expected()), tolerance(c, *kernel, runner.is_exact(*kernel)));
      }
    }
  }
}

// Attention as the formula has it, over the numbers that the cache was filled with.
TEST(Attention, ReferenceTakesKeysAndValuesOfAnyWidths) {
  for (const AttentionCase& c : uneven_attention_cases()) {
    Random random;
    SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
    AttentionBatch batch(c, random);
    std::map<std::tuple<int, int, int, int>, float> keys, values;
    batch.fill(
        [&](int s, int p, int h, int i) {
          return keys[{s, p, h, i}] = random.normal();
        },
        [&](int s, int p, int h, int i) {
          return values[{s, p, h, i}] = random.normal();
        });
    TestMatrix out(batch.rows(), batch.out_width()), expected(batch.rows(), batch.out_width());
    ThreadPool pool(2);
    const AttentionArgs args = batch.args(out);
    AttentionOp::reference()->run(args, {&pool, nullptr});
    int64_t row = 0;
    for (int s = 0; s < static_cast<int>(c.slices.size()); ++s) {
      for (int r = 0; r < c.slices[static_cast<size_t>(s)].rows; ++r, ++row) {
        const int last = c.slices[static_cast<size_t>(s)].past + r;
        const int first = c.window > 0 ? std::max(0, last - c.window + 1) : 0;
        for (int head = 0; head < c.heads; ++head) {
          const int kv_head = head / (c.heads / c.kv_heads);
          std::vector<double> sums(static_cast<size_t>(c.value_dim()));
          double total = c.sinks ? std::exp(double{batch.sinks()[static_cast<size_t>(head)]}) : 0;
          for (int p = first; p <= last; ++p) {
            double score = 0;
            for (int i = 0; i < c.head_dim; ++i)
              score += double(batch.q().at(row, int64_t{head} * c.head_dim + i)) * keys[{s, p, kv_head, i}];
            score *= args.scale;
            if (c.softcap > 0) score = c.softcap * std::tanh(score / c.softcap);
            const double weight = std::exp(score);
            total += weight;
            for (int i = 0; i < c.value_dim(); ++i)
              sums[static_cast<size_t>(i)] += weight * (c.latent ? keys : values)[{s, p, kv_head, i}];
          }
          for (int i = 0; i < c.value_dim(); ++i)
            expected.at(row, int64_t{head} * c.value_dim() + i) =
                static_cast<float>(sums[static_cast<size_t>(i)] / total);
        }
      }
    }
    EXPECT_TRUE(out.spare_is_untouched());
    // What the cache's format rounds of keys and values.
    const double rounding = c.kv == DType::F32 ? 1e-6 : c.kv == DType::F16 ? 0x1p-11 : c.kv == kFp8 ? 0x1p-5 : 0x1p-7;
    EXPECT_LT(out.distance(expected), 4 * rounding);
  }
}

// The window counts to both sides: with one of 3, row p sees p - 2 .. p + 2.
TEST(Attention, ReferenceLooksInBothDirections) {
  AttentionCase c{"both", DType::F32, 1, 1, 4, 16, 3, 0, {{0, 20}}};
  c.bidirectional = true;
  Random random;
  AttentionBatch batch(c, random);
  // Equal keys give equal weights; the value of a position is its number.
  batch.fill([](int, int, int, int) { return 1.0f; }, [](int, int p, int, int) { return static_cast<float>(p); });
  TestMatrix out(batch.rows(), batch.out_width());
  ThreadPool pool(1);
  for (const int window : {3, 0}) {
    AttentionArgs args = batch.args(out);
    args.window = window;
    AttentionOp::reference()->run(args, {&pool, nullptr});
    for (int row = 0; row < 20; ++row) {
      const int first = window > 0 ? std::max(0, row - 2) : 0, last = window > 0 ? std::min(19, row + 2) : 19;
      EXPECT_NEAR(out.at(row, 0), (first + last) / 2.0, 1e-5) << row;
    }
  }
}

// A sink of a head without scores near it: far below, the result is that without a sink; far above, it is zero.
TEST(Attention, SinksMayBeFarFromTheScores) {
  for (AttentionCase c : {AttentionCase{"decode", DType::F16, 6, 2, 32, 16, 0, 0, {{700, 1}}},
                          AttentionCase{"prefill", DType::F32, 6, 2, 32, 16, 90, 0, {{100, 150}}}}) {
    Random random;
    AttentionBatch plain(c, random);
    TestMatrix without(plain.rows(), plain.width());
    ThreadPool pool(2);
    AttentionOp::reference()->run(plain.args(without), {&pool, nullptr});
    plain.sinks() = {-3e38f, -1e30f, -200, 200, 1e30f, 3e38f};
    Runner runner(plain, 3);
    const std::vector<float> phi(static_cast<size_t>(c.heads), 3.0f);
    for (const AttentionKernel* kernel : tested_kernels()) {
      if (!runner.can_run(*kernel)) continue;
      SCOPED_TRACE(c.name + " " + std::string(kernel->name()) + " seed " + std::to_string(random.seed()));
      for (const float* maxima : {static_cast<const float*>(nullptr), phi.data()}) {
        TestMatrix out = runner.run(*kernel, maxima);
        EXPECT_LT(out.distance(runner.expected()), tolerance(c, *kernel, runner.is_exact(*kernel)));
        for (int64_t row = 0; row < out.view().rows; ++row) {
          for (int64_t i = 0; i < plain.width(); ++i) {
            const bool far_below = i < 3 * c.head_dim;
            EXPECT_NEAR(out.at(row, i), far_below ? without.at(row, i) : 0, far_below ? 0.05 : 0);
          }
        }
      }
    }
  }
}

TEST(Attention, KernelsOfOneHeadSizeRefuseOthers) {
  for (const AttentionCase& c : uneven_attention_cases()) {
    if (c.latent) continue;  // a latent value is part of its key
    Random random;
    const AttentionProblem problem = AttentionBatch(c, random).problem();
    for (const AttentionKernel* kernel : tested_kernels())
      EXPECT_EQ(kernel->can_run(problem, test_hardware()), kernel == AttentionOp::reference())
          << c.name << kernel->name();
  }
}

TEST(AttentionProblem, ItsTextTellsAllProblemsApart) {
  const AttentionProblem usual{DType::F16, Precision::Fast, 8, 2, 64, 64, 16, 0, false, 4, 4, 100};
  std::vector<AttentionProblem> all(17, usual);
  all[1].kv = DType::BF16;
  all[2].precision = Precision::Exact;
  all[3].heads = 16;
  all[4].kv_heads = 4;
  all[5].key_dim = 128;
  all[6].value_dim = 128;
  all[7].key_dim = all[7].value_dim = 128;
  all[8].block_size = 32;
  all[9].window = 64;
  all[10].softcap = true;
  all[11].sequences = 2;
  all[12].rows = 8;
  all[13].context = 128;
  all[14].invariant = true;
  all[15].calibrated = true;
  all[16].sinks = true;
  for (int i = 0; i < 3; ++i) {  // latent rows of one, of narrower values, and calibrated
    all.push_back(usual);
    all.back().latent = true;
    if (i > 0) all.back().value_dim = 32;
    if (i > 1) all.back().calibrated = true;
  }
  std::set<std::string> texts;
  for (const auto& problem : all) texts.insert(to_string(problem));
  EXPECT_EQ(texts.size(), all.size());
}

TEST(Attention, IsTheSameBitForBitForOneThreadCount) {
  for (const AttentionCase& c : attention_cases()) {
    Random random;
    AttentionBatch batch(c, random);
    for (int threads : {2, 3}) {
      Runner runner(batch, threads);
      for (const AttentionKernel* kernel : tested_kernels()) {
        if (!runner.can_run(*kernel)) continue;
        const TestMatrix once = runner.run(*kernel);
        EXPECT_TRUE(runner.run(*kernel).same_bits(once))
            << c.name << " " << kernel->name() << " seed " << random.seed();
      }
    }
  }
}

// Scores that are hard for a softmax, made with queries and keys in which only the first element is nonzero.
struct Attack {
  std::string name;
  std::function<float(int position, int length)> score;
};

std::vector<Attack> attacks() {
  return {
      {"all equal", [](int, int) { return 3.0f; }},
      {"all -1e4", [](int, int) { return -1e4f; }},
      {"all +1e4", [](int, int) { return 1e4f; }},
      {"+-1e4", [](int p, int) { return p % 3 == 0 ? 1e4f : -1e4f; }},
      {"spike at the start", [](int p, int) { return p == 0 ? 1e4f : 0.0f; }},
      {"spike at the end", [](int p, int length) { return p == length - 1 ? 1e4f : 0.0f; }},
      {"spike in the middle", [](int p, int length) { return p == length / 2 ? 500.0f : -500.0f; }},
      {"pit at the start", [](int p, int) { return p < 64 ? -1e4f : 1e4f; }},
      {"rising", [](int p, int) { return 7.0f * static_cast<float>(p); }},
      {"falling", [](int p, int) { return -7.0f * static_cast<float>(p); }},
      {"steps of the slack", [](int p, int) { return 5.5f * static_cast<float>(p / 64); }},
      {"beyond f32", [](int, int) { return 3e38f; }},
      {"below f32", [](int, int) { return -3e38f; }},
      {"all -inf", [](int, int) { return -std::numeric_limits<float>::infinity(); }},
      {"all -inf but the last",
       [](int p, int length) { return p == length - 1 ? 3.0f : -std::numeric_limits<float>::infinity(); }},
      {"some -inf", [](int p, int) { return p % 3 == 0 ? -std::numeric_limits<float>::infinity() : 3.0f; }},
      {"-inf at the start", [](int p, int) { return p < 128 ? -std::numeric_limits<float>::infinity() : -40.0f; }},
  };
}

TEST(Attention, SurvivesAttacksOnTheSoftmax) {
  for (AttentionCase c : {AttentionCase{"decode", DType::F32, 6, 2, 32, 16, 0, 0, {{700, 1}}},
                          AttentionCase{"decode", DType::F16, 6, 2, 32, 32, 0, 0, {{700, 1}}},
                          AttentionCase{"prefill", DType::F32, 4, 2, 32, 16, 0, 0, {{100, 150}}},
                          AttentionCase{"prefill", DType::BF16, 4, 2, 32, 64, 0, 0, {{100, 150}}},
                          AttentionCase{"prefill", DType::F16, 4, 2, 32, 64, 0, 0, {{100, 150}}},
                          AttentionCase{"window", DType::F16, 4, 2, 32, 16, 90, 0, {{300, 1}, {0, 130}}},
                          AttentionCase{"softcap", DType::F16, 4, 2, 32, 16, 0, 30, {{300, 1}, {0, 130}}}}) {
    for (const Attack& attack : attacks()) {
      Random random;
      AttentionBatch batch(c, random);
      // The score is q k / sqrt(32); both factors stay within f16.
      const float q = 64, scale = std::sqrt(32.0f) / q;
      const float first = attack.score(0, 1);
      if (c.kv == DType::F16 && std::isfinite(first) && std::abs(first) > 1e30f) continue;
      for (int64_t row = 0; row < batch.rows(); ++row) {
        for (int64_t i = 0; i < batch.width(); ++i) batch.q().at(row, i) = i % c.head_dim == 0 ? q : 0.0f;
      }
      batch.fill(
          [&](int slice, int position, int, int i) {
            const int length = c.slices[static_cast<size_t>(slice)].past + c.slices[static_cast<size_t>(slice)].rows;
            return i == 0 ? attack.score(position, length) * scale : 0.0f;
          },
          [&](int, int, int, int) { return random.normal(); });
      Runner runner(batch, 3);
      for (const AttentionKernel* kernel : tested_kernels()) {
        if (!runner.can_run(*kernel)) continue;
        SCOPED_TRACE(c.name + " " + std::string(name(c.kv)) + " " + attack.name + " " + std::string(kernel->name()));
        const double error = runner.run(*kernel).distance(runner.expected());
        EXPECT_LT(error, runner.is_exact(*kernel) ? 2e-3 : 1e-2);  // false for NaN; f32 resolves 1e4 to 1e-3
      }
    }
  }
}

// Two large elements that cancel, as occurs after RoPE: the score is small, but partial sums are large.
TEST(Attention, LargePartsOfScoresMayCancelOut) {
  constexpr int kDim = 128;
  for (const float large : {8.0f, 32.0f, 100.0f}) {
    const AttentionCase c{"cancel", DType::F16, 4, 2, kDim, 64, 0, 0, {{0, 60}, {100, 90}}};
    Random random;
    AttentionBatch batch(c, random);
    const auto is_large = [&](int64_t i) { return i % kDim == 0 || i % kDim == kDim / 2; };
    for (int64_t row = 0; row < batch.rows(); ++row) {
      for (int64_t i = 0; i < batch.width(); ++i) batch.q().at(row, i) = is_large(i) ? large : random.normal();
    }
    batch.fill([&](int, int, int, int i) { return i == 0        ? large
                                                  : is_large(i) ? -large
                                                                : random.normal(); },
               [&](int, int, int, int) { return random.normal(); });
    Runner runner(batch, 2);
    for (const AttentionKernel* kernel : tested_kernels()) {
      if (!runner.can_run(*kernel)) continue;
      SCOPED_TRACE(std::string(kernel->name()) + " " + std::to_string(large));
      // The error of partial sums in f32, or in f16 for kernels that sum large values in it.
      const double on_the_way = large * large / std::sqrt(kDim);
      const double adding_up = large < 16 && kernel->name() == "flash_fp16" ? 4 * 0x1p-11 : 0x1p-18;
      EXPECT_LT(runner.run(*kernel).distance(runner.expected()),
                tolerance(c, *kernel, runner.is_exact(*kernel)) + on_the_way * adding_up);
    }
  }
}

// At the first positions of a prompt all visible scores are far below zero; only masked ones are near it.
TEST(Attention, UnseenScoresDoNotVouchForSeenOnes) {
  for (const int window : {0, 20}) {
    const AttentionCase c{"unseen", DType::F16, 4, 2, 32, 64, window, 0, {{0, 60}}};
    Random random;
    AttentionBatch batch(c, random);
    const float q = 64, scale = std::sqrt(32.0f) / q;
    for (int64_t row = 0; row < batch.rows(); ++row) {
      for (int64_t i = 0; i < batch.width(); ++i) batch.q().at(row, i) = i % c.head_dim == 0 ? q : 0.0f;
    }
    batch.fill(
        [&](int, int position, int, int i) {
          if (i > 0) return 0.0f;
          return (position == 59 ? 0 : -700 - static_cast<float>(position % 4)) * scale;
        },
        [&](int, int, int, int) { return random.normal(); });
    Runner runner(batch, 2);
    for (const AttentionKernel* kernel : tested_kernels()) {
      if (!runner.can_run(*kernel)) continue;
      SCOPED_TRACE(std::string(kernel->name()) + " window " + std::to_string(window));
      EXPECT_LT(runner.run(*kernel).distance(runner.expected()), runner.is_exact(*kernel) ? 1e-4 : 1e-2);
    }
  }
}

// The result is right for any calibrated maximum: a bad one only costs time.
TEST(Attention, UnifiedMaximumMayBeWrong) {
  for (const char* name :
       {"decode_gqa3", "mixed", "prefill_window", "decode_q8", "decode_sinks", "prefill_sinks_window"}) {
    const auto cases = attention_cases();
    const AttentionCase& c =
        *std::find_if(cases.begin(), cases.end(), [&](const auto& one) { return one.name == name; });
    Random random;
    AttentionBatch batch(c, random);
    Runner runner(batch, 2);
    for (const AttentionKernel* kernel : tested_kernels()) {
      if (!runner.can_run(*kernel)) continue;
      for (float value : {0.0f, 3.0f, -60.0f, 60.0f, 1e4f, -1e4f, 1e30f}) {
        const std::vector<float> phi(static_cast<size_t>(c.heads), value);
        const double error = runner.run(*kernel, phi.data()).distance(runner.expected());
        EXPECT_LT(error, tolerance(c, *kernel, runner.is_exact(*kernel)))
            << name << " " << kernel->name() << " phi " << value;
      }
    }
  }
}

// A sequence gives the same rows alone, in chunks, and in a batch.
TEST(Attention, DoesNotDependOnTheBatch) {
  const AttentionCase together{"", DType::F32, 6, 2, 64, 16, 0, 0, {{0, 150}}};
  Random random;
  AttentionBatch whole(together, random);
  Runner runner(whole, 2);
  for (const AttentionKernel* kernel : tested_kernels()) {
    if (!runner.can_run(*kernel)) continue;
    TestMatrix all = runner.run(*kernel);
    for (int split : {1, 64, 149}) {
      TestMatrix out(150, whole.width());
      AttentionArgs args = whole.args(out);
      const SequenceSlice sequence = args.sequences[0];
      std::vector<SequenceSlice> slices = {{split, 150 - split, split, 150, sequence.pages},
                                           {0, split, 0, 150, sequence.pages}};
      args.sequences = slices;
      ThreadPool pool(3);
      Hardware hardware = test_hardware();
      hardware.threads = 3;
      std::vector<std::byte> workspace(kernel->workspace_bytes(whole.problem(), hardware));
      kernel->run(args, {&pool, workspace.data()});
      EXPECT_LT(out.distance(all), 1e-6) << kernel->name() << " " << split;
    }
  }
}

TEST(Attention, ExactProblemsGetExactKernelsOnly) {
  AttentionProblem problem{DType::F16, Precision::Exact, 8, 2, 64, 64, 16};
  for (const AttentionKernel* kernel : tested_kernels()) {
    if (kernel->name() == "flash_bf16" || kernel->name() == "flash_fhm" || kernel->name() == "flash_fp16") {
      EXPECT_FALSE(kernel->can_run(problem, test_hardware())) << kernel->name();
    }
  }
}

TEST(AttentionProblem, BucketsKeepDecodesApartAndRoundUp) {
  AttentionProblem decode{DType::F16, Precision::Fast, 8, 2, 64, 64, 16};
  decode.sequences = decode.rows = 5;
  decode.context = 1000;
  const AttentionProblem bucket = decode.bucketed();
  EXPECT_EQ(bucket.sequences, 8);
  EXPECT_EQ(bucket.rows, 8);
  EXPECT_EQ(bucket.context, 1024);
  EXPECT_EQ(bucket.bucketed(), bucket);
  decode.rows = 6;
  EXPECT_EQ(decode.bucketed().rows, 8);
}

}  // namespace
}  // namespace millrace
