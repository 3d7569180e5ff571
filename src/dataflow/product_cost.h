// Measured times of the products that the CPU computes for a GPU: a few rows, each with its experts. Estimates of the
// kernels are off by up to a third there, which is too much to place weights by.
#pragma once

#include <span>
#include <vector>

#include "kernels/grouped_linear/grouped_linear.h"

namespace millrace {

class Ops;

struct ProductCost {
  GroupedLinearProblem of;                  // of one row; its groups do not matter
  double call_us = 0;                       // of each call
  double factor = 1;                        // of the kernel's estimate
  double gbs = 0;                           // rate at which further experts are read
  static constexpr int64_t kMostRows = 32;  // more are bound by arithmetic: their estimates stay as they are
};

struct ProductTimes {
  double one = 0, few = 0;  // of one row, and of kFewRows
  static constexpr int64_t kFewRows = 8;
};
// The cost for which call_us + factor * estimate equals both measured times. Noise cannot make either part negative.
ProductCost fit_product_cost(const GroupedLinearProblem& of, const ProductTimes& estimated,
                             const ProductTimes& measured);
double corrected_us(std::span<const ProductCost> costs, const GroupedLinearProblem& problem, double estimated_us);

// Measures each kind of grouped layer that `ops`, those of the CPU, have planned. Takes some tenths of a second and up
// to 1.3 GB of memory for a while.
std::vector<ProductCost> measure_products(Ops& ops);

}  // namespace millrace
