// Selects the largest of many values without sorting (border.h). Among equal values the lowest index wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace millrace {

class ThreadPool;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The threads of `helpers`, if given, share the scan. They do not change the result.

// Copies the k largest values (1 <= k <= values.size()) in the order of their indices and returns their number, which
// is smaller than k if fewer values are not NaN.
size_t gather_top_k(std::span<const float> values, size_t k, float* kept, int32_t* kept_index,
                    ThreadPool* helpers = nullptr);

// The lowest index of the largest logit; -1 if none is above -infinity.
int32_t likeliest(std::span<const float> logits, ThreadPool* helpers = nullptr);

// Turns logits into weights, that is unnormalised probabilities: the largest becomes 1, -infinity and NaN become 0,
// infinity counts as the largest float. Returns the total; 0 if no logit is above -infinity.
double to_weights(std::span<float> logits, float temperature, ThreadPool* helpers = nullptr);

// Filters set dropped weights to 0 and keep at least one. They take the total and return the new total.
double keep_top_p(std::span<float> weights, double total, float p);
double keep_min_p(std::span<float> weights, float p);
double keep_typical(std::span<float> weights, double total, float p,
                    std::span<float> scratch);  // scratch: as many floats as weights

// The index at which the running sum of the weights passes unit * total, with unit in [0, 1). Its weight is never 0.
size_t draw(std::span<const float> weights, double total, double unit);

}  // namespace millrace
