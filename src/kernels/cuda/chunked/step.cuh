// One row of a recurrence of params.cuh: a decode step. Its time is that of moving the states once.
#pragma once

#include "kernels/cuda/chunked/prepare.cuh"

namespace millrace::chunked {

constexpr int kStepThreads = 256, kStepWarps = 8;

// One block per slice of one row, head and kColumns columns of the state. Loads are issued before the first one is
// used. Warps share the rows of the state. S^T k and S^T q of the old state are summed in one round: with the change c
// the output is decay S^T q + (k q) c.
template <int kKeys, int kColumns, class Gate>
__global__ void __launch_bounds__(kStepThreads, kColumns == 128 || kKeys > 128 ? 2 : 3)
    step_rows(const __grid_constant__ PrepareParams<Gate> params) {
  constexpr int kLanes = kColumns / 4, kAtOnce = 32 / kLanes;  // lanes of a row of the state, rows of a warp
  constexpr int kPerThread = kKeys / (kAtOnce * kStepWarps), kPerLane = kKeys / 32;
  __shared__ float4 sums[2][kStepWarps][kLanes];
  allow_dependents();
  wait_for_predecessors();
  const ChunkedParams& p = params.chunked;
  const int h = static_cast<int>(blockIdx.y), warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, four = lane % kLanes;
  const int column = static_cast<int>(blockIdx.x) * kColumns + four * 4;
  const bool inside = column < p.value_dim;
  auto* state = reinterpret_cast<float*>(p.state + static_cast<size_t>(p.slots[blockIdx.z]) * p.stride) +
                int64_t{h} * p.value_dim * p.key_dim + column;
  const auto key_of = [&](int n) { return (n * kStepWarps + warp) * kAtOnce + lane / kLanes; };
  float4 s[kPerThread];
#pragma unroll
  for (int n = 0; n < kPerThread; ++n) {
    const bool valid = inside && key_of(n) < p.key_dim;
    s[n] = valid ? __ldcs(reinterpret_cast<const float4*>(state + int64_t{key_of(n)} * p.value_dim)) : float4{};
  }
  const SliceTables::Slice slice = p.slices[blockIdx.z];
  if (slice.rows != 1) return;  // behind the loads: they need not wait for it
  const int64_t row = slice.first_row;
  const int64_t key_column = int64_t{p.key_head(h)} * p.key_dim;
  const auto* q = reinterpret_cast<const __nv_bfloat16*>(p.q.data) + row * p.q.stride + key_column;
  const auto* k = reinterpret_cast<const __nv_bfloat16*>(p.k.data) + row * p.k.stride + key_column;
  const auto* v = reinterpret_cast<const __nv_bfloat16*>(p.v.data) + row * p.v.stride + int64_t{h} * p.value_dim;
  float of_q[kPerThread], of_k[kPerThread], of_v[4];
#pragma unroll
  for (int n = 0; n < kPerThread; ++n) {
    const bool valid = key_of(n) < p.key_dim;
    of_q[n] = valid ? to_float(q[key_of(n)]) : 0;
    of_k[n] = valid ? to_float(k[key_of(n)]) : 0;
  }
  float qq = 0, kk = 0, qk = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int key = i * 32 + lane;
    const float a = key < p.key_dim ? to_float(q[key]) : 0, b = key < p.key_dim ? to_float(k[key]) : 0;
    qq = fmaf(a, a, qq), kk = fmaf(b, b, kk), qk = fmaf(a, b, qk);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) of_v[i] = inside ? to_float(v[column + i]) : 0;
  const float skip = p.skip != nullptr ? p.skip[h] : 0;
  const GateRow gate = params.gate.row(row, h);
  const float decay = expf(gate.log_decay);
  qk = warp_sum(qk);
  float scale_of_q = 1, scale_of_k = gate.weight;
  if constexpr (Gate::kSolved) {
    scale_of_q = rsqrtf((warp_sum(qq) + Gate::kLengthEpsilon) * static_cast<float>(p.key_dim));
    scale_of_k = rsqrtf(warp_sum(kk) + Gate::kLengthEpsilon);
  }

  float4 by_k{}, by_q{};
  const auto add = [](float4& sum, float factor, const float4& x) {
    sum.x = fmaf(factor, x.x, sum.x), sum.y = fmaf(factor, x.y, sum.y);
    sum.z = fmaf(factor, x.z, sum.z), sum.w = fmaf(factor, x.w, sum.w);
  };
#pragma unroll
  for (int n = 0; n < kPerThread; ++n) {
    if constexpr (Gate::kSolved) add(by_k, of_k[n], s[n]);
    add(by_q, of_q[n], s[n]);
  }
  const auto both_halves = [](float4& sum) {
    sum.x += __shfl_xor_sync(~0u, sum.x, 16), sum.y += __shfl_xor_sync(~0u, sum.y, 16);
    sum.z += __shfl_xor_sync(~0u, sum.z, 16), sum.w += __shfl_xor_sync(~0u, sum.w, 16);
  };
  if constexpr (kAtOnce == 2) {
    if constexpr (Gate::kSolved) both_halves(by_k);
    both_halves(by_q);
  }
  if (lane < kLanes) sums[0][warp][four] = by_k, sums[1][warp][four] = by_q;
  __syncthreads();
  const auto total = [&](int kind) {
    float4 sum{};
#pragma unroll
    for (int w = 0; w < kStepWarps; ++w) add(sum, 1, sums[kind][w][four]);
    return sum;
  };
  float change[4] = {of_v[0], of_v[1], of_v[2], of_v[3]};
  if constexpr (Gate::kSolved) {
    const float4 known = total(0);
    const float factor = decay * scale_of_k;
    change[0] = gate.weight * (of_v[0] - factor * known.x), change[1] = gate.weight * (of_v[1] - factor * known.y);
    change[2] = gate.weight * (of_v[2] - factor * known.z), change[3] = gate.weight * (of_v[3] - factor * known.w);
  }
#pragma unroll
  for (int n = 0; n < kPerThread; ++n) {
    if (!inside || key_of(n) >= p.key_dim) continue;
    const float factor = of_k[n] * scale_of_k;
    __stcs(reinterpret_cast<float4*>(state + int64_t{key_of(n)} * p.value_dim),
           float4{fmaf(factor, change[0], decay * s[n].x), fmaf(factor, change[1], decay * s[n].y),
                  fmaf(factor, change[2], decay * s[n].z), fmaf(factor, change[3], decay * s[n].w)});
  }
  if (warp != 0 || lane >= kLanes || !inside) return;
  const float4 asked = total(1);
  const float of_old = decay * scale_of_q, of_change = qk * scale_of_k * scale_of_q;
  const int64_t at = int64_t{h} * p.value_dim + column;
  p.out.set(row, at, fmaf(of_change, change[0], of_old * asked.x) + skip * of_v[0]);
  p.out.set(row, at + 1, fmaf(of_change, change[1], of_old * asked.y) + skip * of_v[1]);
  p.out.set(row, at + 2, fmaf(of_change, change[2], of_old * asked.z) + skip * of_v[2]);
  p.out.set(row, at + 3, fmaf(of_change, change[3], of_old * asked.w) + skip * of_v[3]);
}

}  // namespace millrace::chunked
