// The cases on which every attention kernel is tested and timed.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <string>

#include "kernels/attention/attention.h"
#include "kernels/kernel_set.h"
#include "support.h"

namespace millrace {

struct SliceCase {
  int past = 0, rows = 1;
};

struct AttentionCase {
  std::string name;
  DType kv = DType::F32;
  int heads = 1, kv_heads = 1, head_dim = 64, block_size = 16;
  int window = 0;
  float softcap = 0;
  std::vector<SliceCase> slices;
  float q_scale = 1, k_scale = 1;  // scales of the random inputs: they set the spread of the scores
  bool shuffled = true;            // pages in random order, as after long use of the cache
  int own_value_dim = 0;           // elements of a value; 0: head_dim
  bool latent = false;             // values are the beginnings of the keys
  bool sinks = false;              // every head has a sink
  bool bidirectional = false;      // rows attend to later rows too

  int value_dim() const { return own_value_dim > 0 ? own_value_dim : head_dim; }
};

inline std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases{
      {"decode_mha", DType::F32, 4, 4, 64, 16, 0, 0, {{100, 1}}},
      {"decode_first_token", DType::F32, 4, 2, 64, 16, 0, 0, {{0, 1}}},
      {"decode_gqa3", DType::F16, 9, 3, 64, 32, 0, 0, {{1000, 1}}},
      {"decode_gqa4_long", DType::F16, 8, 2, 128, 64, 0, 0, {{4095, 1}}},
      {"decode_mqa", DType::BF16, 16, 1, 80, 16, 0, 0, {{333, 1}}},
      {"decode_mqa_wide", DType::F16, 71, 1, 64, 16, 0, 0, {{200, 1}}},
      {"decode_q8", DType::Q8_0, 6, 2, 96, 16, 0, 0, {{517, 1}}},
      {"decode_q8_long", DType::Q8_0, 8, 2, 128, 64, 0, 0, {{4095, 1}}},
      {"decode_q8_window", DType::Q8_0, 8, 2, 64, 16, 100, 0, {{1000, 1}, {40, 1}}},
      {"decode_q8_dim256", DType::Q8_0, 4, 1, 256, 32, 0, 0, {{300, 1}}},
      {"decode_fp8", kFp8, 8, 2, 128, 64, 0, 0, {{4095, 1}}},
      {"decode_fp8_dim80", kFp8, 16, 1, 80, 16, 0, 0, {{333, 1}}},
      {"decode_fp8_dim20", kFp8, 4, 4, 20, 32, 0, 0, {{64, 1}}},
      {"decode_fp8_dim256", kFp8, 4, 1, 256, 48, 0, 20, {{300, 1}}},
      {"decode_fp8_batch", kFp8, 8, 2, 64, 16, 90, 0, {{0, 1}, {15, 1}, {16, 1}, {64, 1}, {700, 1}}},
      {"decode_tiny_dim", DType::F16, 2, 1, 8, 16, 0, 0, {{70, 1}}},
      {"decode_dim12", DType::F32, 6, 2, 12, 16, 0, 0, {{129, 1}}},
      {"decode_dim20", DType::BF16, 4, 4, 20, 32, 0, 0, {{64, 1}}},
      {"decode_dim256", DType::F16, 4, 1, 256, 32, 0, 0, {{300, 1}}},
      {"decode_window", DType::F16, 8, 2, 64, 16, 100, 0, {{1000, 1}}},
      {"decode_window_of_one", DType::F32, 2, 2, 16, 16, 1, 0, {{50, 1}}},
      {"decode_softcap", DType::F16, 8, 4, 64, 16, 0, 20, {{500, 1}}, 4, 4},
      {"decode_batch",
       DType::F16,
       8,
       2,
       64,
       16,
       0,
       0,
       {{0, 1}, {15, 1}, {16, 1}, {63, 1}, {64, 1}, {700, 1}, {2047, 1}}},
      {"prefill_one_page", DType::F32, 2, 1, 16, 16, 0, 0, {{0, 7}}},
      {"prefill_gqa3", DType::F16, 9, 3, 64, 32, 0, 0, {{0, 200}}},
      {"prefill_mha", DType::F32, 3, 3, 64, 128, 0, 0, {{0, 130}}},
      {"prefill_mqa_wide", DType::BF16, 71, 1, 64, 64, 0, 0, {{0, 40}}},
      {"prefill_chunk", DType::F16, 4, 2, 128, 64, 0, 0, {{333, 77}}},
      {"prefill_q8", DType::Q8_0, 4, 2, 64, 16, 0, 0, {{31, 65}}},
      {"prefill_q8_chunk", DType::Q8_0, 4, 2, 128, 64, 0, 0, {{333, 77}}},
      {"prefill_q8_window", DType::Q8_0, 6, 2, 96, 16, 50, 0, {{20, 150}}},
      {"prefill_fp8", kFp8, 4, 2, 128, 64, 0, 0, {{333, 77}, {0, 30}}},
      {"prefill_fp8_dim80", kFp8, 4, 2, 80, 16, 0, 0, {{11, 64}}},
      {"prefill_dim12", DType::F32, 4, 2, 12, 16, 0, 0, {{5, 66}}},
      {"prefill_dim20", DType::F16, 4, 4, 20, 32, 0, 0, {{0, 97}}},
      {"prefill_dim80", DType::BF16, 4, 2, 80, 16, 0, 0, {{11, 64}}},
      {"prefill_dim96", DType::F16, 2, 2, 96, 16, 0, 0, {{0, 65}}},
      {"prefill_dim256", DType::F16, 4, 2, 256, 32, 0, 0, {{64, 33}}},
      {"prefill_window", DType::F16, 6, 2, 64, 16, 50, 0, {{20, 150}}},
      {"prefill_window_far", DType::F32, 2, 2, 64, 32, 33, 0, {{500, 90}}},
      {"prefill_softcap", DType::F32, 4, 2, 64, 16, 0, 50, {{0, 90}}, 6, 6},
      {"verify_draft", DType::F16, 9, 3, 64, 32, 0, 0, {{777, 5}}},
      {"mixed", DType::F16, 9, 3, 64, 32, 0, 0, {{300, 1}, {0, 70}, {1023, 1}, {128, 3}, {40, 100}, {0, 1}}},
      {"mixed_window_q8", DType::Q8_0, 8, 2, 32, 16, 64, 30, {{300, 1}, {10, 120}, {63, 1}, {64, 2}}},
      {"mixed_f32", DType::F32, 4, 1, 64, 64, 0, 0, {{10, 30}, {500, 1}, {0, 65}}},
  };
  const auto add_sinks = [&](AttentionCase c) {
    c.sinks = true;
    cases.push_back(c);
  };
  add_sinks({"decode_sinks", DType::F16, 16, 2, 64, 16, 0, 0, {{1000, 1}}});
  add_sinks({"decode_sinks_first_token", DType::BF16, 8, 2, 128, 64, 0, 0, {{0, 1}}});
  add_sinks({"decode_sinks_window", DType::BF16, 16, 2, 64, 16, 128, 0, {{0, 1}, {127, 1}, {128, 1}, {900, 1}}});
  add_sinks({"decode_sinks_mqa", DType::F16, 71, 1, 96, 16, 0, 0, {{200, 1}}});
  add_sinks({"decode_sinks_softcap", DType::F32, 6, 2, 12, 16, 0, 20, {{300, 1}}, 4, 4});
  add_sinks({"verify_draft_sinks", DType::BF16, 16, 2, 64, 32, 128, 0, {{777, 5}}});
  add_sinks({"prefill_sinks", DType::F16, 8, 1, 64, 32, 0, 0, {{0, 130}}});
  add_sinks({"prefill_sinks_window", DType::BF16, 4, 2, 128, 64, 50, 0, {{33, 100}}});
  add_sinks({"mixed_sinks_q8", DType::Q8_0, 8, 2, 32, 16, 64, 0, {{300, 1}, {10, 120}, {63, 1}, {64, 2}}});
  add_sinks({"verify_draft_sinks_q8", DType::Q8_0, 16, 2, 64, 32, 128, 0, {{777, 5}}});
  add_sinks({"mixed_sinks_fp8", kFp8, 8, 2, 64, 16, 64, 0, {{300, 1}, {10, 120}, {63, 1}, {64, 2}}});
  add_sinks({"mixed_sinks_f32", DType::F32, 4, 1, 64, 64, 0, 0, {{10, 30}, {500, 1}, {0, 65}}});
  const auto add_bidirectional = [&](AttentionCase c) {
    c.bidirectional = true;
    cases.push_back(c);
  };
  add_bidirectional({"bidirectional", DType::F32, 4, 4, 32, 16, 0, 0, {{0, 70}, {0, 1}, {0, 130}, {0, 9}}});
  add_bidirectional({"bidirectional_f16", DType::F16, 4, 2, 64, 64, 0, 0, {{0, 200}, {0, 63}}});
  add_bidirectional({"bidirectional_window", DType::F32, 2, 2, 16, 16, 5, 0, {{0, 150}, {0, 3}}});
  add_bidirectional({"bidirectional_window_f16", DType::BF16, 6, 3, 64, 16, 65, 0, {{0, 300}}});
#ifdef MILLRACE_SANITIZED  // kernels are tens of times slower: several pages and pieces suffice
  for (AttentionCase& c : cases) {
    for (auto& slice : c.slices) slice.past = slice.past > 300 ? 200 + slice.past % 100 : slice.past;
  }
#endif
  return cases;
}

// Cases whose keys and values differ in width or share one latent row.
inline std::vector<AttentionCase> uneven_attention_cases() {
  std::vector<AttentionCase> cases;
  const auto add = [&](const std::string& name, DType kv, int kv_heads, int key_dim, int value_dim, bool latent) {
    AttentionCase c{name, kv, 4, kv_heads, key_dim, 16, 0, 0, {{100, 1}, {0, 40}, {17, 3}}};
    c.own_value_dim = value_dim;
    c.latent = latent;
    cases.push_back(c);
  };
  add("narrow_values", DType::F32, 2, 48, 20, false);
  add("wide_values", DType::F32, 4, 16, 40, false);
  add("narrow_values_f16", DType::F16, 2, 192, 128, false);
  add("narrow_values_q8", DType::Q8_0, 2, 96, 64, false);
  add("latent", DType::F32, 1, 36, 32, true);
  add("latent_same_width", DType::F32, 1, 32, 32, true);
  add("latent_bf16", DType::BF16, 1, 96, 64, true);
  add("latent_q8", DType::Q8_0, 1, 96, 64, true);
  add("narrow_values_fp8", kFp8, 2, 96, 64, false);
  add("latent_fp8", kFp8, 1, 96, 64, true);
  add("latent_of_two_heads", DType::F16, 2, 40, 24, true);
  for (const DType kv : {DType::BF16, DType::F16}) {  // the sizes of DeepSeek, of more heads than one tile
    add("latent_deepseek", kv, 1, 576, 512, true);
    cases.back().heads = 20;
    cases.back().slices = {{70, 1}, {3, 9}};
  }
  AttentionCase window = cases.front();
  window.name = "narrow_values_window";
  window.window = 9;
  window.softcap = 20;
  cases.push_back(window);
  AttentionCase sinks = cases.front();
  sinks.name = "narrow_values_sinks";
  sinks.sinks = true;
  cases.push_back(sinks);
  return cases;
}

// A batch in memory: pages in random order in a pool with spare pages, which are full of NaN.
class AttentionBatch {
 public:
  static constexpr std::byte kNan{0xff};  // a NaN repeats this byte in every plain format
  AttentionBatch(const AttentionCase& c, Random& random, std::byte unused = kNan);

  AttentionArgs args(TestMatrix& out);
  AttentionProblem problem() const;
  int64_t rows() const { return rows_; }
  int64_t width() const { return int64_t{case_.heads} * case_.head_dim; }  // of q
  int64_t out_width() const { return int64_t{case_.heads} * case_.value_dim(); }
  TestMatrix& q() { return *q_; }
  std::vector<float>& sinks() { return sinks_; }      // of the heads; empty: none
  size_t pool_bytes() const { return keys_.size(); }  // of the keys; the values have as many
  // Fills keys and values of every slice: key(slice, position, kv head, element).
  void fill(const std::function<float(int slice, int position, int head, int i)>& key,
            const std::function<float(int slice, int position, int head, int i)>& value);

 private:
  AttentionCase case_;
  int64_t rows_ = 0;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<SequenceSlice> slices_;
  std::vector<std::byte> keys_, values_;
  KvLayer kv_;
  std::unique_ptr<TestMatrix> q_;
  std::vector<float> sinks_;
};

inline AttentionBatch::AttentionBatch(const AttentionCase& c, Random& random, std::byte unused) : case_(c) {
  int pages = 1;
  for (const SliceCase& slice : c.slices) pages += (slice.past + slice.rows + c.block_size - 1) / c.block_size + 1;
  std::vector<int32_t> free(pages);
  std::iota(free.rbegin(), free.rend(), 0);
  if (c.shuffled) random.shuffle(free);
  kv_ = {c.kv, c.kv_heads, c.head_dim, c.value_dim(), c.block_size, pages};
  kv_.latent = c.latent;
  keys_.assign(kv_.key_offset(pages, 0, 0), unused);
  if (!c.latent) values_.assign(kv_.value_offset(pages, 0, 0), unused);
  kv_.keys = keys_.data();
  kv_.values = c.latent ? keys_.data() : values_.data();
  for (const SliceCase& slice : c.slices) {
    const int length = slice.past + slice.rows;
    std::vector<int32_t> own((length + c.block_size - 1) / c.block_size);
    for (int32_t& page : own) page = free.back(), free.pop_back();
    pages_.push_back(std::move(own));
    rows_ += slice.rows;
  }
  int row = 0;
  for (size_t i = 0; i < c.slices.size(); ++i) {
    slices_.push_back({row, c.slices[i].rows, c.slices[i].past, c.slices[i].past + c.slices[i].rows, pages_[i]});
    row += c.slices[i].rows;
  }
  q_ = std::make_unique<TestMatrix>(rows_, width(), random, c.q_scale);
  fill([&](int, int, int, int) { return random.normal(c.k_scale); },
       [&](int, int, int, int) { return random.normal(); });
  // Some sinks outweigh a whole row, some are negligible.
  for (int head = 0; c.sinks && head < c.heads; ++head) sinks_.push_back(random.normal(4));
}

inline void AttentionBatch::fill(const std::function<float(int, int, int, int)>& key,
                                 const std::function<float(int, int, int, int)>& value) {
  Hardware hardware;
  for (size_t s = 0; s < slices_.size(); ++s) {
    const int length = slices_[s].past + slices_[s].rows;
    const int key_dim = case_.head_dim, value_dim = case_.value_dim();
    TestMatrix k(length, int64_t{case_.kv_heads} * key_dim), v(length, int64_t{case_.kv_heads} * value_dim);
    for (int p = 0; p < length; ++p) {
      for (int head = 0; head < case_.kv_heads; ++head) {
        for (int i = 0; i < std::max(key_dim, value_dim); ++i) {
          if (i < key_dim) k.at(p, int64_t{head} * key_dim + i) = key(static_cast<int>(s), p, head, i);
          if (i < value_dim) v.at(p, int64_t{head} * value_dim + i) = value(static_cast<int>(s), p, head, i);
        }
      }
    }
    const SequenceSlice all{0, length, 0, length, pages_[s]};
    KvWriteOp::reference()->run({k.view(), v.view(), kv_, {&all, 1}}, {});
  }
}

inline AttentionArgs AttentionBatch::args(TestMatrix& out) {
  AttentionArgs args;
  args.q = q_->view();
  args.out = out.view();
  args.kv = kv_;
  args.sequences = slices_;
  args.heads = case_.heads;
  args.scale = 1 / std::sqrt(static_cast<float>(case_.head_dim));
  args.softcap = case_.softcap;
  args.window = case_.window;
  args.bidirectional = case_.bidirectional;
  args.sinks = sinks_.empty() ? nullptr : sinks_.data();
  return args;
}

inline AttentionProblem AttentionBatch::problem() const {
  AttentionProblem p;
  p.kv = case_.kv;
  p.heads = case_.heads;
  p.kv_heads = case_.kv_heads;
  p.key_dim = case_.head_dim;
  p.value_dim = case_.value_dim();
  p.latent = case_.latent;
  p.block_size = case_.block_size;
  p.window = case_.window;
  p.softcap = case_.softcap > 0;
  p.sinks = case_.sinks;
  p.bidirectional = case_.bidirectional;
  p.sequences = static_cast<int64_t>(case_.slices.size());
  p.rows = rows_;
  for (const SliceCase& slice : case_.slices) p.context = std::max<int64_t>(p.context, slice.past + slice.rows);
  return p;
}

}  // namespace millrace
