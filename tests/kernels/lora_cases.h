// Cases of the op of low-rank adapters, for the tests of both back-ends.
#pragma once

#include <string>
#include <vector>

#include "kernels/lora/lora.h"
#include "support.h"
#include "tensor/half.h"

namespace millrace {

struct LoraCase {
  std::string name;
  int64_t rows = 1, k = 0;                  // of x; of an embedding the entries of the table
  std::vector<int32_t> columns;             // of each part
  std::vector<std::vector<int32_t>> ranks;  // [adapters][parts]; 0: the part has no matrices
  bool embedding = false;
  int32_t group = 0;  // gate and up alternate
  bool runs = false;  // neighbouring rows have the same adapter, as in a prompt
};

inline std::vector<std::vector<int32_t>> many_ranks(const std::vector<int32_t>& ranks, size_t adapters) {
  return std::vector(adapters, ranks);
}

inline std::vector<LoraCase> lora_cases() {
  return {
      {"one row", 1, 64, {48}, {{8}}},
      {"q, k and v", 7, 72, {64, 16, 16}, {{4, 4, 4}, {1, 0, 9}, {0, 0, 0}, {16, 3, 0}}},
      {"odd sizes", 5, 37, {13, 5, 29}, {{3, 2, 1}, {5, 0, 7}}},
      {"many rows", 150, 256, {1040}, {{16}, {33}, {64}}},
      {"a prompt", 133, 128, {96, 96}, {{8, 8}, {24, 0}}, false, 0, true},
      {"the largest rank", 9, 96, {40, 24}, {{256, 256}, {1, 256}}},
      {"an embedding", 19, 50, {72}, {{4}, {11}}, true},
      {"gate and up alternate", 70, 64, {64, 64}, {{8, 4}, {0, 3}, {16, 16}}, false, 8, true},
      {"a decode of many adapters", 32, 1024, {512, 136, 128}, many_ranks({16, 16, 16}, 12)},
      {"a decode of one adapter", 37, 4168, {1032}, {{16}}},
      {"a full decode of one adapter", 64, 2048, {320, 64}, {{64, 8}}, false, 0, true},
      {"large ranks in a decode", 21, 264, {136, 72}, {{256, 130}, {64, 0}, {40, 200}, {1, 0}}},
      {"unaligned parts in a decode", 18, 512, {65, 7, 120}, {{16, 5, 1}, {0, 33, 16}}},
      {"gate and up in a decode", 40, 320, {200, 200}, {{16, 16}, {8, 0}, {0, 5}, {64, 80}}, false, 8},
      {"gate, then up, in a decode", 9, 640, {1032, 1032}, {{16, 16}, {0, 4}}},
      {"wide rows in a decode", 5, 8208, {48, 24}, {{20, 16}, {16, 8}}},
  };
}

// Appends random values in a format and returns where they begin.
inline size_t add_random(DType format, int64_t count, Random& random, std::vector<std::byte>& bytes) {
  const size_t at = bytes.size(), each = static_cast<size_t>(info(format).bytes);
  bytes.resize(at + (static_cast<size_t>(count) * each + 127) / 128 * 128);
  for (int64_t i = 0; i < count; ++i) {
    const float value = random.normal(0.3f);
    const uint16_t half = format == DType::F16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(bytes.data() + at + static_cast<size_t>(i) * each,
                format == DType::F32 ? static_cast<const void*>(&value) : &half, each);
  }
  return at;
}

// The matrices of each adapter at `memory`. `offsets`: of its A and its B.
inline std::vector<LoraWeights> lora_table(std::vector<LoraWeights> table,
                                           const std::vector<std::pair<size_t, size_t>>& offsets,
                                           const std::byte* memory) {
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].parts == 0) continue;  // nothing of the entry is set
    table[i].a = memory + offsets[i].first;
    table[i].b = memory + offsets[i].second;
  }
  return table;
}

// Matrices of a few adapters and rows that choose among them; some rows have none, but the first one has.
class LoraBatch {
 public:
  LoraBatch(const LoraCase& c, DType format, Random& random)
      : problem{format, c.rows, 0, c.k, std::ssize(c.columns), c.embedding, c.group > 0},
        x(c.embedding ? 1 : c.rows, c.embedding ? 1 : c.k, random, 0.5f),
        y(c.rows, total(c.columns), random) {
    problem.n = total(c.columns);
    for (const auto& ranks : c.ranks) add(c, ranks, random);
    const auto adapters_count = static_cast<int>(c.ranks.size());
    for (int64_t row = 0; row < c.rows; ++row) {
      const bool repeat = c.runs && row > 0 && row % 13 != 0;
      adapters.push_back(row == 0 ? 0 : repeat ? adapters.back() : random.below(adapters_count + 1) - 1);
      ids.push_back(row % 5 == 4 ? ~int32_t{1} : random.below(static_cast<int>(c.k)));
    }
    chosen = {0, random.below(static_cast<int>(c.k))};
  }

  // The arguments in host memory, with the matrices at `memory`, a copy of `bytes`.
  LoraOp::Args args(Matrix own_x, Matrix own_y, const std::vector<LoraWeights>& table) const {
    LoraOp::Args a{.format = problem.format,
                   .parts = problem.parts,
                   .scale = 1.5f,
                   .adapters = adapters.data(),
                   .table = table.data(),
                   .y = own_y};
    if (problem.embedding) {
      a.ids = ids;
      a.chosen = chosen.data();
    } else {
      a.x = own_x;
    }
    return a;
  }

  std::vector<LoraWeights> table_at(const std::byte* memory) const { return lora_table(weights, offsets, memory); }
  int64_t most_rank() const {
    int64_t most = 0;
    for (const LoraWeights& w : weights) most = std::max<int64_t>(most, w.rank);
    return most;
  }

  LoraOp::Problem problem;
  TestMatrix x, y;
  std::vector<std::byte> bytes;
  std::vector<LoraWeights> weights;
  std::vector<std::pair<size_t, size_t>> offsets;  // of A and B in `bytes`
  std::vector<int32_t> adapters, ids, chosen;

 private:
  static int64_t total(const std::vector<int32_t>& columns) {
    return std::accumulate(columns.begin(), columns.end(), 0);
  }

  void add(const LoraCase& c, const std::vector<int32_t>& ranks, Random& random) {
    LoraWeights w;
    int64_t b = 0;
    for (size_t p = 0, column = 0; p < ranks.size(); column += static_cast<size_t>(c.columns[p]), ++p) {
      if (ranks[p] == 0) continue;
      const auto at =
          static_cast<int32_t>(c.group > 0 ? static_cast<int64_t>(p) * c.group : static_cast<int64_t>(column));
      w.part[w.parts++] = {at, c.columns[p], w.rank, ranks[p], b, c.group};
      w.rank += ranks[p];
      b += int64_t{ranks[p]} * c.columns[p];
    }
    const size_t first = add_random(problem.format, w.rank * c.k, random, bytes);
    offsets.emplace_back(first, add_random(problem.format, b, random, bytes));
    weights.push_back(w);
  }
};

}  // namespace millrace
