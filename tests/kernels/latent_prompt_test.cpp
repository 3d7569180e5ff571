// Materialised latent attention against plain loops in double.
#include "kernels/latent_prompt/latent_prompt.h"

#include <gtest/gtest.h>

#include "attention_cases.h"
#include "experts.h"
#include "kernels/latent_prompt/head_matrix.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

// Whether some linear kernel reads such matrices, as for every layout that is chosen.
bool is_read(const LinearLayout& layout, DType format, int64_t n, int64_t k, const Hardware& hardware) {
  if (!layout.accepts(format, n, k, hardware)) return false;
  if (layout.in_place(format, n, k)) return true;
  const LinearProblem problem{format, layout.name(), Precision::Fast, n, k, 1, DType::F32, false};
  return !ExpertChoice(problem, hardware, nullptr).candidates().empty();
}

struct PromptCase {
  std::string name;
  DType kv, weights;
  int heads, plain, rotary, value, latent;
  SliceCase slice;
  int window = 0;
  float softcap = 0;
  bool sinks = false;
};

std::vector<PromptCase> prompt_cases() {
  return {
      {"f32", DType::F32, DType::F32, 3, 16, 8, 16, 32, {0, 70}},
      {"two_rows", DType::F32, DType::F32, 2, 16, 8, 16, 32, {63, 2}},
      {"odd_sizes", DType::F32, DType::F32, 3, 5, 6, 7, 21, {19, 65}},
      {"narrow_rotary", DType::F16, DType::F16, 2, 12, 2, 20, 36, {130, 64}},
      {"wide_values", DType::BF16, DType::BF16, 2, 8, 8, 40, 24, {5, 129}},
      {"q4_0", DType::F16, DType::Q4_0, 2, 32, 16, 32, 64, {100, 90}},
      {"q8_0", DType::F32, DType::Q8_0, 5, 64, 32, 64, 96, {0, 33}},
      {"q6_k", DType::F32, DType::Q6_K, 1, 256, 32, 24, 256, {30, 20}},
      {"q8_cache", DType::Q8_0, DType::Q4_0, 2, 32, 32, 48, 96, {64, 64}},
      {"fp8_cache", kFp8, DType::F32, 2, 16, 16, 16, 48, {1, 100}},
      {"long_chunk", DType::F32, DType::F32, 2, 8, 4, 8, 16, {200, 700}},
      {"window", DType::F32, DType::F32, 2, 16, 8, 16, 32, {300, 140}, 50},
      {"softcap_sinks", DType::F32, DType::F32, 3, 16, 8, 16, 32, {20, 66}, 0, 5, true},
      {"deepseek", DType::F16, DType::Q4_0, 2, 128, 64, 128, 512, {130, 70}},
  };
}

class PromptBatch {
 public:
  PromptBatch(const PromptCase& c, Random& random)
      : case_(c),
        attention_(attention_case(c), random),
        plain_(c.slice.rows, int64_t{c.heads} * (c.plain + 3), random),  // a head's part is no whole row of its own
        keys_(c.weights, c.heads, c.latent, c.plain, random),
        values_(c.weights, c.heads, c.value, c.latent, random) {}

  LatentPromptOp::Problem problem() const {
    return {case_.kv,    Precision::Fast, case_.heads, case_.plain,      case_.rotary,
            case_.value, case_.latent,    16,          case_.slice.rows, case_.slice.past + case_.slice.rows};
  }

  // Runs a kernel with weights in a layout; the workspace is poisoned, with a guard behind it.
  TestMatrix run(const Kernel<LatentPromptOp>& kernel, const LinearLayout& layout, const Hardware& hardware,
                 ThreadPool& pool) {
    constexpr size_t kGuard = 256;
    const size_t bytes = kernel.workspace_bytes(problem(), hardware);
    std::vector<std::byte> memory(bytes + kGuard + 64, std::byte{0xff});
    auto* workspace = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    const GroupedWeights keys = keys_.packed(layout, pool), values = values_.packed(layout, pool);
    TestMatrix out(case_.slice.rows, int64_t{case_.heads} * case_.value);
    kernel.run({attention_.args(out), plain_.view(), case_.plain + 3, case_.plain, case_.value, &keys, &values},
               {&pool, workspace, nullptr, &hardware});
    for (size_t i = bytes; i < bytes + kGuard; ++i) EXPECT_EQ(workspace[i], std::byte{0xff}) << "beyond the workspace";
    EXPECT_TRUE(out.spare_is_untouched());
    return out;
  }

  TestMatrix expected() {
    TestMatrix out(case_.slice.rows, int64_t{case_.heads} * case_.value);
    const AttentionArgs args = attention_.args(out);
    for (int head = 0; head < case_.heads; ++head) attend(args, head, expand(args, head), out);
    return out;
  }

 private:
  struct Expanded {  // [positions][elements]
    std::vector<std::vector<double>> keys, values;
  };

  static AttentionCase attention_case(const PromptCase& c) {
    AttentionCase a{c.name, c.kv, c.heads, 1, c.latent + c.rotary, 16, c.window, c.softcap, {c.slice}};
    a.own_value_dim = c.latent;
    a.latent = true;
    a.sinks = c.sinks;
    return a;
  }

  static std::vector<float> row(DType format, const std::byte* data, int64_t n) {
    std::vector<float> wide(static_cast<size_t>(n));
    dequantize_row(format, data, wide.data(), n);
    return wide;
  }

  Expanded expand(const AttentionArgs& args, int head) {
    Expanded all;
    const SequenceSlice& slice = args.sequences.front();
    const WeightView keys = keys_.file_view(head), values = values_.file_view(head);
    std::vector<std::vector<float>> key_rows, value_rows;
    for (int64_t i = 0; i < keys.rows; ++i) key_rows.push_back(row(keys.dtype, keys.row(i), keys.cols));
    for (int64_t i = 0; i < values.rows; ++i) value_rows.push_back(row(values.dtype, values.row(i), values.cols));
    for (int position = 0; position < slice.past + slice.rows; ++position) {
      const size_t at = args.kv.key_offset(slice.pages[static_cast<size_t>(position / 16)], 0, position % 16);
      const auto latent = row(args.kv.dtype, args.kv.keys + at, args.kv.key_dim);
      std::vector<double> key(static_cast<size_t>(case_.plain)), value(static_cast<size_t>(case_.value));
      for (size_t l = 0; l < key_rows.size(); ++l) {
        for (size_t e = 0; e < key.size(); ++e) key[e] += double(latent[l]) * key_rows[l][e];
        for (size_t e = 0; e < value.size(); ++e) value[e] += double(latent[l]) * value_rows[e][l];
      }
      key.insert(key.end(), latent.begin() + case_.latent, latent.end());
      all.keys.push_back(key);
      all.values.push_back(value);
    }
    return all;
  }

  void attend(const AttentionArgs& args, int head, const Expanded& all, TestMatrix& out) {
    const SequenceSlice& slice = args.sequences.front();
    const int row_dim = case_.latent + case_.rotary;
    for (int r = 0; r < slice.rows; ++r) {
      std::vector<double> q(static_cast<size_t>(case_.plain + case_.rotary));
      for (int e = 0; e < case_.plain; ++e) q[static_cast<size_t>(e)] = plain_.at(r, head * (case_.plain + 3) + e);
      for (int e = 0; e < case_.rotary; ++e)
        q[static_cast<size_t>(case_.plain + e)] = attention_.q().at(r, head * row_dim + case_.latent + e);
      const SeenPositions seen = seen_by(args, slice, r);
      std::vector<double> scores;
      double most = args.sinks != nullptr ? args.sinks[head] : -1e300;
      for (int p = seen.begin; p < seen.end; ++p) {
        const double score =
            args.scale * std::inner_product(q.begin(), q.end(), all.keys[static_cast<size_t>(p)].begin(), 0.0);
        scores.push_back(args.softcap > 0 ? args.softcap * std::tanh(score / args.softcap) : score);
        most = std::max(most, scores.back());
      }
      double total = args.sinks != nullptr ? std::exp(args.sinks[head] - most) : 0;
      std::vector<double> sums(static_cast<size_t>(case_.value));
      for (size_t i = 0; i < scores.size(); ++i) {
        const double weight = std::exp(scores[i] - most);
        total += weight;
        const auto& value = all.values[static_cast<size_t>(seen.begin) + i];
        for (size_t e = 0; e < sums.size(); ++e) sums[e] += weight * value[e];
      }
      for (size_t e = 0; e < sums.size(); ++e)
        out.at(r, int64_t{head} * case_.value + static_cast<int64_t>(e)) = static_cast<float>(sums[e] / total);
    }
  }

  PromptCase case_;
  AttentionBatch attention_;
  TestMatrix plain_;
  TestExperts keys_, values_;
};

TEST(LatentPrompt, MatchesPlainLoops) {
  for (const PromptCase& c : prompt_cases()) {
    Random random;
    PromptBatch batch(c, random);
    TestMatrix expected = batch.expected();
    for (const Hardware& level : hardware_levels()) {
      for (const int threads : {1, 5}) {  // five: some heads are cut into blocks of rows
        ThreadPool pool(threads);
        Hardware hardware = level;
        hardware.threads = threads;
        for (const LinearLayout* layout : cpu_kernels().layouts) {
          if (!is_read(*layout, c.weights, c.latent, c.plain, hardware)) continue;
          for (const auto* kernel : LatentPromptOp::cpu()) {
            if (kernel == LatentPromptOp::absorbed() || !kernel->can_run(batch.problem(), hardware)) continue;
            SCOPED_TRACE(c.name + " " + std::string(kernel->name()) + " " + std::string(layout->name()) + " seed " +
                         std::to_string(random.seed()));
            // Scores are sums of products of weights that are not small, and the softmax multiplies their errors.
            EXPECT_LT(batch.run(*kernel, *layout, hardware, pool).distance(expected), 2e-4);
          }
        }
      }
    }
  }
}

TEST(LatentPrompt, RowsDoNotDependOnTheNumberOfThreads) {
  Random random;
  PromptBatch batch(prompt_cases()[10], random);
  const auto& kernel = first_that_runs(LatentPromptOp::cpu(), batch.problem(), test_hardware());
  if (&kernel == LatentPromptOp::absorbed()) GTEST_SKIP() << "no kernel for this machine";
  const auto run = [&](int threads) {
    ThreadPool pool(threads);
    Hardware hardware = test_hardware();
    hardware.threads = threads;
    return batch.run(kernel, *cpu_kernels().layouts.back(), hardware, pool);
  };
  const TestMatrix one = run(1);
  EXPECT_TRUE(run(7).same_bits(one)) << "seed " << random.seed();
}

// With the sizes of DeepSeek V2 Lite. Exact precision leaves out attention kernels with matrix instructions.
TEST(LatentPrompt, EstimatesPreferItForLongChunksOnly) {
  Hardware hardware = test_hardware();
  hardware.threads = 2;
  hardware.ceilings.f32_gflops = 100;
  hardware.ceilings.read_gbs = 20;
  hardware.ceilings.region_us = 3;
  const auto prefers = [&](int64_t rows, int64_t context) {
    const LatentPromptOp::Problem p{DType::F16, Precision::Exact, 16, 128, 64, 128, 512, 64, rows, context};
    double least = std::numeric_limits<double>::infinity();
    for (const auto* kernel : LatentPromptOp::cpu()) {
      if (kernel != LatentPromptOp::absorbed() && kernel->can_run(p, hardware))
        least = std::min(least, kernel->estimate_us(p, hardware));
    }
    return least < LatentPromptOp::absorbed()->estimate_us(p, hardware);
  };
  const auto any = LatentPromptOp::cpu().front();
  if (!any->can_run({DType::F16, Precision::Exact, 1, 8, 8, 8, 8, 16, 8, 8}, hardware)) GTEST_SKIP();
  for (const int64_t context : {512, 4096, 65536}) {
    EXPECT_TRUE(prefers(512, context)) << context;
    EXPECT_FALSE(prefers(2, context)) << context;
    EXPECT_FALSE(prefers(32, context)) << context;
  }
}

// Matrices as f32, from every layout.
TEST(HeadMatrix, EqualsTheFileRows) {
  ThreadPool pool(1);
  for (const DType format : {DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q5_1, DType::Q3_K,
                             DType::Q6_K, DType::IQ4_XS, DType::MXFP4}) {
    const int64_t block = info(format).block, n = 21, k = std::max<int64_t>(96, block);
    Random random;
    TestExperts experts(format, 2, n, k, random);
    for (const Hardware& hardware : hardware_levels()) {
      for (const LinearLayout* layout : cpu_kernels().layouts) {
        if (!is_read(*layout, format, n, k, hardware)) continue;
        const GroupedWeights weights = experts.packed(*layout, pool);
        std::vector<std::byte> memory(HeadMatrix::bytes(n, k) + 64);
        auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
        for (const bool transposed : {false, true}) {
          TestMatrix got(transposed ? k : n, transposed ? n : k), expected = got;
          for (int64_t i = 0; i < n; ++i) {
            std::vector<float> row(static_cast<size_t>(k));
            dequantize_row(format, experts.file_view(1).row(i), row.data(), k);
            for (int64_t j = 0; j < k; ++j)
              expected.at(transposed ? j : i, transposed ? i : j) = row[static_cast<size_t>(j)];
          }
          const Matrix to = got.view();
          HeadMatrix(weights, hardware).read(1, transposed, to.row<float>(0), to.stride, aligned);
          EXPECT_LT(got.distance(expected), 1e-6)
              << name(format) << " " << layout->name() << " transposed " << transposed << " seed " << random.seed();
          EXPECT_TRUE(got.spare_is_untouched());
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
