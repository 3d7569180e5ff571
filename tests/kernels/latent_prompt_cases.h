// Cases of materialised latent attention, for the tests of both back-ends, and plain loops in double to compare with.
#pragma once

#include "attention_cases.h"
#include "base/thread_pool.h"
#include "experts.h"
#include "kernels/latent_prompt/latent_prompt.h"
#include "tensor/dequantize.h"

namespace millrace {

struct PromptCase {
  std::string name;
  DType kv, weights;
  int heads, plain, rotary, value, latent;
  SliceCase slice;
  int window = 0;
  float softcap = 0;
  bool sinks = false;
  float q_scale = 1;

  // Standard deviation of the scores. The softmax multiplies errors of keys by it.
  double spread() const {
    return q_scale * std::sqrt(double(plain) * latent + rotary) / std::sqrt(double(latent + rotary));
  }
};

inline std::vector<PromptCase> prompt_cases() {
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

// Sizes that a GPU materialises: of models, and small ones that fill a part of its tiles. Several pieces of 128
// positions, and rows of less than a tile, of one and of several.
inline std::vector<PromptCase> gpu_prompt_cases() {
  std::vector<PromptCase> cases{
      {"deepseek", DType::BF16, DType::BF16, 3, 128, 64, 128, 512, {130, 300}},
      {"deepseek_first", DType::BF16, DType::BF16, 2, 128, 64, 128, 512, {0, 129}},
      {"deepseek_whole_pieces", DType::BF16, DType::BF16, 2, 128, 64, 128, 512, {128, 256}},
      {"deepseek_few_rows", DType::F16, DType::F16, 2, 128, 64, 128, 512, {700, 9}},
      {"deepseek_long_chunk", DType::F16, DType::F16, 1, 128, 64, 128, 512, {40, 600}},
      {"deepseek_q4_0", DType::BF16, DType::Q4_0, 2, 128, 64, 128, 512, {64, 260}},
      {"deepseek_q8_0", DType::F16, DType::Q8_0, 2, 128, 64, 128, 512, {3, 200}},
      {"deepseek_q8_cache", DType::Q8_0, DType::BF16, 2, 128, 64, 128, 512, {100, 200}},
      {"deepseek_fp8_cache", kFp8, DType::F16, 2, 128, 64, 128, 512, {1, 140}},
      {"minicpm3", DType::F16, DType::Q4_0, 5, 64, 32, 64, 256, {5, 400}},
      {"glm_lite", DType::BF16, DType::BF16, 2, 192, 64, 256, 512, {77, 150}},
      {"glm_lite_f16", DType::F16, DType::F32, 2, 192, 64, 256, 512, {0, 70}},
      {"small", DType::BF16, DType::BF16, 4, 8, 16, 12, 16, {20, 44}},
      {"small_f32_weights", DType::F16, DType::F32, 3, 16, 8, 16, 32, {0, 2}},
      {"small_page_end", DType::BF16, DType::F16, 2, 16, 16, 16, 32, {15, 113}},
      {"window", DType::BF16, DType::BF16, 2, 64, 64, 64, 64, {300, 140}, 50},
      {"wide_window", DType::F16, DType::F16, 2, 128, 64, 128, 96, {90, 500}, 190},
      {"softcap", DType::F16, DType::F16, 3, 64, 32, 64, 128, {20, 366}, 0, 5},
      {"sinks", DType::BF16, DType::BF16, 3, 128, 64, 128, 128, {200, 166}, 0, 0, true},
  };
  for (PromptCase& c : cases) c.q_scale = static_cast<float>(2 / c.spread());
  return cases;
}

class PromptBatch {
 public:
  // A head's part of a query is no whole row of its own: `gap` elements lie between them. `before`: a slice of the same
  // step in front of the chunk.
  PromptBatch(const PromptCase& c, Random& random, int gap = 3, SliceCase before = {0, 0})
      : case_(c),
        plain_stride_(c.plain + gap),
        attention_(attention_case(c, before), random),
        plain_(attention_.rows(), int64_t{c.heads} * plain_stride_, random, c.q_scale),
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
    TestMatrix out = fresh_out();
    kernel.run(args(of_chunk(attention_.args(out)), plain_.view(), keys, values),
               {&pool, workspace, nullptr, &hardware});
    for (size_t i = bytes; i < bytes + kGuard; ++i) EXPECT_EQ(workspace[i], std::byte{0xff}) << "beyond the workspace";
    EXPECT_TRUE(out.spare_is_untouched());
    return out;
  }

  TestMatrix expected() {
    TestMatrix out = fresh_out();
    const AttentionArgs args = of_chunk(attention_.args(out));
    for (int head = 0; head < case_.heads; ++head) attend(args, head, expand(args, head), out);
    return out;
  }

  // Of all rows of the step; only those of the chunk are written.
  TestMatrix fresh_out() { return {attention_.rows(), int64_t{case_.heads} * case_.value}; }
  int64_t first_row() const { return attention_.rows() - case_.slice.rows; }
  static AttentionArgs of_chunk(AttentionArgs args) {
    args.sequences = args.sequences.last(1);
    return args;
  }
  LatentPromptOp::Args args(const AttentionArgs& attention, const Matrix& plain, const GroupedWeights& keys,
                            const GroupedWeights& values) const {
    return {attention, plain, plain_stride_, case_.plain, case_.value, &keys, &values};
  }
  AttentionBatch& attention() { return attention_; }
  TestMatrix& plain() { return plain_; }
  const TestExperts& keys() const { return keys_; }
  const TestExperts& values() const { return values_; }

 private:
  struct Expanded {  // [positions][elements]
    std::vector<std::vector<double>> keys, values;
  };

  static AttentionCase attention_case(const PromptCase& c, SliceCase before) {
    AttentionCase a{c.name, c.kv, c.heads, 1, c.latent + c.rotary, 16, c.window, c.softcap, {c.slice}, c.q_scale};
    if (before.rows > 0) a.slices.insert(a.slices.begin(), before);
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
      for (int e = 0; e < case_.plain; ++e)
        q[static_cast<size_t>(e)] = plain_.at(slice.first_row + r, head * plain_stride_ + e);
      for (int e = 0; e < case_.rotary; ++e)
        q[static_cast<size_t>(case_.plain + e)] =
            attention_.q().at(slice.first_row + r, head * row_dim + case_.latent + e);
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
        out.at(slice.first_row + r, int64_t{head} * case_.value + static_cast<int64_t>(e)) =
            static_cast<float>(sums[e] / total);
    }
  }

  PromptCase case_;
  int64_t plain_stride_;
  AttentionBatch attention_;
  TestMatrix plain_;
  TestExperts keys_, values_;
};

}  // namespace millrace
