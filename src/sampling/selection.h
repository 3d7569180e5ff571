// Keeps the heaviest of many numbers without sorting them (border.h). Among equals the lowest index goes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace millrace {

class ThreadPool;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Where `helpers` are given, all of them look through the numbers; what is found is the same.

// Copies the k largest (1 <= k <= values.size()) in the order of their indices and returns how many those are: NaN is
// never among them.
size_t gather_top_k(std::span<const float> values, size_t k, float* kept, int32_t* kept_index,
                    ThreadPool* helpers = nullptr);

// The index of the largest, the lowest where several are; -1 where none is above -infinity.
int32_t likeliest(std::span<const float> logits, ThreadPool* helpers = nullptr);

// Turns logits into weights, which are probabilities before their division by the total: the largest becomes 1,
// -infinity and NaN become 0, infinity counts as the largest float. Returns the total; 0 where no logit is above
// -infinity.
double to_weights(std::span<float> logits, float temperature, ThreadPool* helpers = nullptr);

// Filters of weights: what is not kept becomes 0, at least one stays. They take the total and return the new one.
double keep_top_p(std::span<float> weights, double total, float p);
double keep_min_p(std::span<float> weights, float p);
double keep_typical(std::span<float> weights, double total, float p, std::span<float> scratch);  // as many floats

// The index at which the running sum of the weights passes unit * total, unit in [0, 1): never one of weight 0.
size_t draw(std::span<const float> weights, double total, double unit);

}  // namespace millrace
