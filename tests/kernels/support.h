// Shared by kernel tests and benchmarks: fresh random inputs, poisoned outputs, errors in norms.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "fresh_seed.h"
#include "hardware/detect.h"
#include "kernels/kernel_set.h"

namespace millrace {

// A new seed for each run, printed on failure; MILLRACE_TEST_SEED in the message repeats it.
class Random {
 public:
  Random() : seed_(fresh_seed()), engine_(seed_) {}
  explicit Random(uint32_t seed) : seed_(seed), engine_(seed) {}
  uint32_t seed() const { return seed_; }

  float normal(float scale = 1) { return std::normal_distribution<float>(0, scale)(engine_); }
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine_); }
  void shuffle(std::vector<int32_t>& items) { std::shuffle(items.begin(), items.end(), engine_); }

 private:
  uint32_t seed_;
  std::mt19937 engine_;
};

// term(0) + term(1) + .. + term(n - 1), with eight independent sums: dependent additions would dominate the tests'
// time.
template <class Term>
double sum_of(int64_t n, Term term) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += term(i + j);
  }
  for (; i < n; ++i) sums[0] += term(i);
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}
inline double dot(const float* a, const float* b, int64_t n) {
  return sum_of(n, [&](int64_t i) { return double(a[i]) * b[i]; });
}

// A matrix with spare columns on both sides, like a view into a larger buffer; spare and fresh elements are NaN.
class TestMatrix {
 public:
  TestMatrix(int64_t rows, int64_t cols) : rows_(rows), cols_(cols), data_(rows * (cols + 2 * kSpare), kPoison) {}
  TestMatrix(int64_t rows, int64_t cols, Random& random, float scale = 1) : TestMatrix(rows, cols) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) at(r, c) = random.normal(scale);
    }
  }

  Matrix view() {
    return {DType::F32, rows_, cols_, cols_ + 2 * kSpare, reinterpret_cast<std::byte*>(data_.data() + kSpare)};
  }
  float& at(int64_t r, int64_t c) { return data_[r * (cols_ + 2 * kSpare) + kSpare + c]; }

  // |this - other| / |other| in the Frobenius norm; NaN if an element was not written.
  double distance(TestMatrix& other) { return distance(other, 0, rows_); }
  double distance(TestMatrix& other, int64_t first_row, int64_t rows) {
    double difference = 0, norm = 0;
    for (int64_t r = first_row; r < first_row + rows; ++r) {
      for (int64_t c = 0; c < cols_; ++c) {
        const double d = static_cast<double>(at(r, c)) - other.at(r, c);
        difference += d * d;
        norm += static_cast<double>(other.at(r, c)) * other.at(r, c);
      }
    }
    return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  }
  bool spare_is_untouched() const {
    for (int64_t r = 0; r < rows_; ++r) {
      const float* row = data_.data() + r * (cols_ + 2 * kSpare);
      for (int64_t c = 0; c < kSpare; ++c) {
        if (!std::isnan(row[c]) || !std::isnan(row[kSpare + cols_ + c])) return false;
      }
    }
    return true;
  }
  bool same_bits(const TestMatrix& other) const {
    return std::memcmp(data_.data(), other.data_.data(), data_.size() * sizeof(float)) == 0;
  }

 private:
  static constexpr int64_t kSpare = 3;
  static constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
  int64_t rows_, cols_;
  std::vector<float> data_;
};

inline const Hardware& test_hardware() {
  static const Hardware hardware = detect_cpu(2);
  return hardware;
}

// The machine at every --isa level that it has. ThreadSanitizer sees the strongest only: threads share the work alike
// at all levels.
inline std::vector<Hardware> hardware_levels() {
  std::vector<Hardware> levels;
  for (const IsaLevel& level : isa_levels()) {
    Hardware hardware = test_hardware();
    hardware.isa = hardware.isa.both(level.allowed);
    if (levels.empty() || hardware.isa != levels.back().isa) levels.push_back(hardware);
  }
#ifdef __SANITIZE_THREAD__
  levels.erase(levels.begin(), levels.end() - 1);
#endif
  return levels;
}

}  // namespace millrace
