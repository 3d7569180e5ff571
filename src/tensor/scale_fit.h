// The quantizers' search: the scale (and minimum) with which a few integer levels approximate a group of numbers best,
// by weighted least squares.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tensor/blocks.h"

namespace millrace {

inline float inverse(float v) { return v == 0 ? 0 : 1 / v; }

// v rounded to an integer in [least, most]; NaN gives least. Adding 1.5 * 2^23 drops the fraction bits: no branch and
// no library call.
inline float nearest_level(float v, float least, float most) {
  constexpr float kShift = 0x1.8p23f;
  v = v > least ? v : least;
  v = v < most ? v : most;
  return (v + kShift) - kShift;
}

inline int nearest(float v, int least, int most) {
  return static_cast<int>(nearest_level(v, static_cast<float>(least), static_cast<float>(most)));
}

// Levels kLeast, kLeast + 1, ..., -kLeast - 1, coded from 0.
template <int kLeast>
struct EvenLevels {
  static constexpr int kCount = -2 * kLeast;
  static int code(float v) { return nearest(v, kLeast, -kLeast - 1) - kLeast; }
  static int value(int code) { return code + kLeast; }
  static float level(float v) { return nearest_level(v, kLeast, -kLeast - 1); }
};

// The non-uniform levels of IQ4_NL.
struct Iq4Levels {
  static constexpr int kCount = 16;
  static int code(float v) {  // the number of midpoints below v, by binary search
    const auto beyond = [v](int i) { return v > 0.5f * static_cast<float>(kIq4Values[i] + kIq4Values[i + 1]); };
    int code = beyond(7) ? 8 : 0;
    code += beyond(code + 3) ? 4 : 0;
    code += beyond(code + 1) ? 2 : 0;
    return code + (beyond(code) ? 1 : 0);
  }
  static int value(int code) { return kIq4Values[code]; }
  static float level(float v) { return static_cast<float>(value(code(v))); }
};

// For numbers x with levels l and weights w, the best scale is sum wxl / sum wll. Its error is sum wxx - (sum wxl)^2 /
// sum wll.
struct Products {
  double wxl = 0, wll = 0;
};

template <size_t N>
Products products(const float* x, const float* w, const float* levels) {
  constexpr size_t kLanes = 4;  // independent sums, so that additions overlap
  double wxl[kLanes] = {}, wll[kLanes] = {};
  for (size_t i = 0; i < N; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const auto level = static_cast<double>(levels[i + lane]);
      const double weighed = static_cast<double>(w[i + lane]) * level;
      wxl[lane] += weighed * static_cast<double>(x[i + lane]);
      wll[lane] += weighed * level;
    }
  }
  return {(wxl[0] + wxl[1]) + (wxl[2] + wxl[3]), (wll[0] + wll[1]) + (wll[2] + wll[3])};
}

// The scale (of either sign) that minimises sum w (x - scale * level)^2 over N numbers, each taking its nearest level.
template <class Levels, size_t N>
float fit_scale(const float* x, const float* w) {
  float extreme = 0;  // the number of largest magnitude, with its sign
  for (size_t i = 0; i < N; ++i) extreme = std::abs(x[i]) > std::abs(extreme) ? x[i] : extreme;
  if (std::abs(extreme) < 1e-15f) return 0;
  double best_gain = 0;
  float best_scale = 0;
  const auto attempt = [&](float inverse) {
    float levels[N];
    for (size_t i = 0; i < N; ++i) levels[i] = Levels::level(inverse * x[i]);
    const Products sum = products<N>(x, w, levels);
    if (sum.wll > 0 && sum.wxl * sum.wxl > best_gain * sum.wll) {
      best_gain = sum.wxl * sum.wxl / sum.wll;
      best_scale = static_cast<float>(sum.wxl / sum.wll);
    }
  };
  // The extreme number is placed near either end of the levels, in steps of 0.3 levels.
  for (const int end : {Levels::value(0), Levels::value(Levels::kCount - 1)}) {
    for (int step = -3; step <= 3; ++step) {
      attempt(static_cast<float>(end) * (1 + 0.3f * static_cast<float>(step) / (Levels::kCount / 2)) / extreme);
    }
  }
  if (best_scale != 0) attempt(1 / best_scale);
  return best_scale;
}

// x ~ scale * q - min with q in [0, most]; neither scale nor min is negative.
struct AffineFit {
  float scale = 0, min = 0;
};

template <size_t N>
AffineFit fit_affine(const float* x, const float* w, int most) {
  const float low = std::min(0.0f, *std::min_element(x, x + N));
  const float high = *std::max_element(x, x + N);
  if (!(high - low > 1e-15f)) return {0, -low};
  double sum_w = 0, sum_wx = 0;
  for (size_t i = 0; i < N; ++i) {
    sum_w += static_cast<double>(w[i]);
    sum_wx += static_cast<double>(w[i]) * static_cast<double>(x[i]);
  }
  double best_gain = -1;
  AffineFit best;
  // The range is extended beyond its ends in steps of 0.2 levels. For given q, the normal equations give scale and
  // offset; the error is sum wxx minus the gain.
  for (int step = -5; step <= 5; ++step) {
    const float inverse = (static_cast<float>(most) + 0.2f * static_cast<float>(step)) / (high - low);
    float q[N];
    for (size_t i = 0; i < N; ++i) q[i] = nearest_level(inverse * (x[i] - low), 0, static_cast<float>(most));
    const Products sum = products<N>(x, w, q);
    double wq = 0;
    for (size_t i = 0; i < N; ++i) wq += static_cast<double>(w[i]) * static_cast<double>(q[i]);
    if (!(sum.wll > 0)) continue;
    const double determinant = sum_w * sum.wll - wq * wq;
    double scale = (sum_w * sum.wxl - sum_wx * wq) / determinant;
    double offset = (sum.wll * sum_wx - wq * sum.wxl) / determinant;
    // A minimum above zero cannot be stored. If all q are equal, the equations are singular.
    if (!(determinant > 1e-9 * sum_w * sum.wll) || offset > 0) {
      offset = 0;
      scale = sum.wxl / sum.wll;
    }
    const double gain = scale * sum.wxl + offset * sum_wx;
    if (scale > 0 && gain > best_gain) {
      best_gain = gain;
      best = {static_cast<float>(scale), static_cast<float>(-offset)};
    }
  }
  return best;
}

// Weights of the errors of n numbers. Without importance the magnitude decides, which favours large numbers without
// ignoring the many small ones.
inline void weigh(const float* x, const float* importance, size_t n, float* w) {
  float squares = 0;
  for (size_t i = 0; i < n; ++i) squares += x[i] * x[i];
  const float mean = squares / static_cast<float>(n);
  const float rms = std::sqrt(mean);
  for (size_t i = 0; i < n; ++i)
    w[i] = importance != nullptr ? importance[i] * std::sqrt(mean + x[i] * x[i]) : rms + std::abs(x[i]);
}

}  // namespace millrace
