// From sums to y: bias, accumulation, rows of weights that do not exist. Included inside a target region.
#pragma once

// Four outputs of row m from column n on. `fresh`: no part of the sum has been written to y before.
inline void write_four(const LinearArgs& args, int64_t m, int64_t n, float32x4_t sums, bool fresh) {
  const int64_t count = args.weights->n - n;
  if (count <= 0) return;
  float* y = args.y.row<float>(m) + n;
  const bool add = args.accumulate || !fresh;
  if (count >= 4) {
    if (fresh && args.bias != nullptr) sums = vaddq_f32(sums, vld1q_f32(args.bias + n));
    if (add) sums = vaddq_f32(sums, vld1q_f32(y));
    return vst1q_f32(y, sums);
  }
  float each[4];
  vst1q_f32(each, sums);
  for (int64_t i = 0; i < count; ++i) {
    y[i] = each[i] + (fresh && args.bias != nullptr ? args.bias[n + i] : 0.0f) + (add ? y[i] : 0.0f);
  }
}
