// Cases of the op of low-rank adapters of experts, for the tests of both back-ends.
#pragma once

#include "experts.h"
#include "kernels/grouped_lora/grouped_lora.h"
#include "kernels/lora_cases.h"

namespace millrace {

struct GroupedLoraCase {
  std::string name;
  int64_t rows = 1, experts = 1, per_row = 1, k = 0;
  std::vector<int32_t> columns;             // of each part
  std::vector<std::vector<int32_t>> ranks;  // [adapters][parts]; 0: the part has no matrices
  bool sum = false;
  Spread spread = Spread::Even;
  bool runs = false;  // neighbouring rows have the same adapter, as in a prompt
  bool some = false;  // an adapter changes only some experts
};

inline std::vector<GroupedLoraCase> grouped_lora_cases() {
  return {
      {"one row", 1, 6, 3, 64, {48, 48}, {{8, 4}}},
      {"one row, a sum", 1, 6, 3, 64, {48}, {{8}}, true},
      {"gate and up", 7, 6, 2, 72, {40, 40}, {{4, 4}, {0, 9}, {0, 0}, {3, 0}}},
      {"odd sizes", 5, 4, 3, 37, {13, 29}, {{3, 2}, {5, 0}}},
      {"odd sizes, a sum", 5, 4, 3, 37, {29}, {{3}, {5}}, true},
      {"many rows", 90, 8, 2, 128, {520}, {{16}, {33}, {64}}},
      {"many rows, a sum", 90, 8, 4, 128, {520}, {{16}, {33}, {64}}, true},
      {"a prompt", 133, 8, 2, 96, {48, 48}, {{8, 8}, {24, 0}}, false, Spread::FewExperts, true},
      {"a prompt, a sum", 133, 8, 2, 96, {72}, {{8}, {24}}, true, Spread::OneExpert, true},
      {"some experts", 60, 8, 2, 72, {40, 40}, {{4, 4}, {0, 9}, {0, 0}, {3, 0}}, false, Spread::Even, false, true},
      {"some experts, a sum", 60, 8, 3, 128, {72}, {{8}, {24}}, true, Spread::Even, false, true},
      {"a prompt, some experts", 133, 8, 4, 96, {48, 48}, {{8, 8}, {24, 0}}, false, Spread::FewExperts, true, true},
      {"the largest rank", 9, 3, 2, 96, {40, 24}, {{256, 256}, {1, 256}}},
  };
}

// Matrices of a few adapters for every expert, and rows that choose among both; some rows have no adapter.
class GroupedLoraBatch {
 public:
  GroupedLoraBatch(const GroupedLoraCase& c, DType format, Random& random)
      : problem{format, c.rows, c.per_row, total(c.columns), c.k, std::ssize(c.columns), c.sum},
        routing(c.rows, c.experts, c.per_row, c.spread, random),
        x(c.sum ? c.rows * c.per_row : c.rows, c.k, random, 0.5f),
        y(c.sum ? c.rows : c.rows * c.per_row, problem.n, random) {
    for (const auto& ranks : c.ranks) add(c, ranks, random);
    for (int64_t row = 0; row < c.rows; ++row) {
      const bool repeat = c.runs && row > 0 && row % 13 != 0;
      adapters.push_back(repeat ? adapters.back() : random.below(static_cast<int>(c.ranks.size()) + 1) - 1);
    }
    adapters[0] = 0;
  }

  GroupedLoraOp::Args args(Matrix own_x, Matrix own_y, const std::vector<LoraWeights>& table) {
    return {.format = problem.format,
            .x = own_x,
            .routing = routing.view(),
            .parts = problem.parts,
            .adapters = adapters.data(),
            .table = table.data(),
            .sum = problem.sum,
            .y = own_y};
  }

  // With the matrices at `memory`, a copy of `bytes`.
  std::vector<LoraWeights> table_at(const std::byte* memory) const {
    std::vector<LoraWeights> table = lora_table(weights, offsets, memory);
    for (size_t i = 0; i < places.size(); ++i) table[i].place = reinterpret_cast<const int32_t*>(memory + places[i]);
    return table;
  }

  GroupedLoraOp::Problem problem;
  TestRouting routing;
  TestMatrix x, y;
  std::vector<std::byte> bytes;
  std::vector<LoraWeights> weights;
  std::vector<std::pair<size_t, size_t>> offsets;  // of A and B in `bytes`
  std::vector<size_t> places;                      // LoraWeights::place in `bytes`; empty: all experts are changed
  std::vector<int32_t> adapters;

 private:
  static int64_t total(const std::vector<int32_t>& columns) {
    return std::accumulate(columns.begin(), columns.end(), 0);
  }

  void add(const GroupedLoraCase& c, const std::vector<int32_t>& ranks, Random& random) {
    LoraWeights w;
    int32_t column = 0;
    for (size_t p = 0; p < ranks.size(); column += c.columns[p++]) {
      if (ranks[p] == 0) continue;
      w.part[w.parts++] = {column, c.columns[p], w.rank, ranks[p], w.b_step, 0};
      w.rank += ranks[p];
      w.b_step += int64_t{ranks[p]} * c.columns[p];
    }
    w.a_step = w.rank * c.k;
    const int64_t changed = c.some ? add_places(c.experts, random) : c.experts;
    const size_t first = add_random(problem.format, changed * w.a_step, random, bytes);
    offsets.emplace_back(first, add_random(problem.format, changed * w.b_step, random, bytes));
    weights.push_back(w);
  }

  // Every other expert is changed, in an order of its own. Returns their number.
  int64_t add_places(int64_t experts, Random& random) {
    std::vector<int32_t> place(static_cast<size_t>(experts), -1);
    const auto changed = static_cast<int32_t>((experts + 1) / 2);
    const int32_t turn = random.below(changed);
    for (int32_t i = 0; i < changed; ++i) place[static_cast<size_t>(2 * i)] = (i + turn) % changed;
    places.push_back(bytes.size());
    const auto* from = reinterpret_cast<const std::byte*>(place.data());
    bytes.insert(bytes.end(), from, from + place.size() * sizeof(int32_t));
    bytes.resize((bytes.size() + 127) / 128 * 128);
    return changed;
  }
};

}  // namespace millrace
