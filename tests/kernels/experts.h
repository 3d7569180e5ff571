// Random mixtures for tests and benchmarks: matrices of many experts, and routings from even to hopelessly skewed.
#pragma once

#include "base/thread_pool.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/rows/rows.h"
#include "kernels/router/router.h"
#include "support.h"
#include "tensor/quantize.h"

namespace millrace {

enum class Spread : uint8_t { Even, OneExpert, FewExperts, ByHead };  // ByHead: row r chooses r % groups

// Owns the arrays of a Routing.
class TestRouting {
 public:
  TestRouting(int64_t rows, int64_t groups, int64_t per_row, Spread spread, Random& random)
      : TestRouting(rows, groups, per_row) {
    // With k choices of a row the "one expert" is a fixed set of k experts.
    const int64_t among = spread == Spread::Even        ? groups
                          : spread == Spread::OneExpert ? per_row
                                                        : std::min(groups, per_row + 1);
    std::vector<int32_t> experts(static_cast<size_t>(groups));
    std::iota(experts.begin(), experts.end(), 0);
    if (spread != Spread::Even) random.shuffle(experts);
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<int32_t> choice(experts.begin(), experts.begin() + among);
      random.shuffle(choice);
      if (spread == Spread::ByHead) choice = {static_cast<int32_t>(row % groups)};
      for (int64_t i = 0; i < per_row; ++i) {
        chosen_[static_cast<size_t>(row * per_row + i)] = choice[static_cast<size_t>(i)];
        weights_[static_cast<size_t>(row * per_row + i)] = random.normal();
      }
    }
    sort_by_group(view());
  }
  TestRouting(int64_t rows, int64_t groups, int64_t per_row)
      : rows_(rows),
        per_row_(per_row),
        groups_(groups),
        chosen_(static_cast<size_t>(rows * per_row), -1),
        order_(chosen_),
        offsets_(static_cast<size_t>(groups + 1), -1),
        weights_(static_cast<size_t>(rows * per_row), std::numeric_limits<float>::quiet_NaN()) {}

  // That of one row alone.
  TestRouting of_row(int64_t row) const {
    TestRouting one(1, groups_, per_row_);
    std::copy_n(chosen_.begin() + row * per_row_, per_row_, one.chosen_.begin());
    std::copy_n(weights_.begin() + row * per_row_, per_row_, one.weights_.begin());
    sort_by_group(one.view());
    return one;
  }

  Routing view() { return {rows_, per_row_, groups_, chosen_.data(), weights_.data(), order_.data(), offsets_.data()}; }

 private:
  int64_t rows_, per_row_, groups_;
  std::vector<int32_t> chosen_, order_, offsets_;
  std::vector<float> weights_;
};

// Random matrices in a file's format, and the same packed in a layout.
class TestExperts {
 public:
  TestExperts(DType format, int64_t groups, int64_t n, int64_t k, Random& random)
      : format_(format), groups_(groups), n_(n), k_(k), rows_(static_cast<size_t>(groups * n) * row_bytes(format, k)) {
    std::vector<float> row(static_cast<size_t>(k));
    for (int64_t i = 0; i < groups * n; ++i) {
      for (float& value : row) value = random.normal();
      quantize_row(format, row.data(), rows_.data() + static_cast<size_t>(i) * row_bytes(format, k), k);
    }
    for (int64_t g = 0; g < groups; ++g) in_file_.push_back(file_view(g).data);
  }

  WeightView file_view(int64_t group) const {
    return {format_, n_, k_, rows_.data() + static_cast<size_t>(group * n_) * row_bytes(format_, k_)};
  }
  GroupedWeights file_rows() const {
    return {format_, groups_, n_, k_, &rows_layout(), in_file_, file_view(0).bytes()};
  }
  // Stays valid until the next call.
  GroupedWeights packed(const LinearLayout& layout, ThreadPool& pool) {
    if (layout.in_place(format_, n_, k_)) return file_rows();
    const size_t bytes = (layout.bytes(format_, n_, k_) + 63) / 64 * 64;
    packed_.assign(bytes * static_cast<size_t>(groups_) + 64, std::byte{});
    auto* base = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(packed_.data()) + 63) / 64 * 64);
    in_layout_.clear();
    for (int64_t g = 0; g < groups_; ++g) {
      in_layout_.push_back(base + static_cast<size_t>(g) * bytes);
      const WeightView view = file_view(g);
      layout.pack({&view, 1}, base + static_cast<size_t>(g) * bytes, pool);
    }
    return {format_, groups_, n_, k_, &layout, in_layout_, bytes};
  }

 private:
  DType format_;
  int64_t groups_, n_, k_;
  std::vector<std::byte> rows_, packed_;
  std::vector<const std::byte*> in_file_, in_layout_;
};

}  // namespace millrace
