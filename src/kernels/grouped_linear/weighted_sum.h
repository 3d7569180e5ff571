// Sums the products of a row's pairs.
#pragma once

#include <cstdint>

#include "hardware/hardware.h"

namespace millrace {

struct WeightedSum {
  static constexpr int32_t kNone = -1;
  const float* products = nullptr;
  int64_t stride = 0;              // elements from one row of products to the next
  const int32_t* rows = nullptr;   // [count]: which products to add; kNone: none
  const float* weights = nullptr;  // [count]
  int64_t count = 0;
};

// y[i] += sum of weights[j] * products[rows[j]][i], added up in the order of j, for n elements.
using AddWeightedSum = void (*)(const WeightedSum& sum, float* y, int64_t n);
AddWeightedSum add_weighted_sum_for(const Hardware& hardware);

}  // namespace millrace
