#include "kernels/attention/cuda/eight_bits.cuh"
#include "kernels/attention/cuda/general_entry.h"
#include "kernels/attention/cuda/rows.cuh"
#include "kernels/cuda/device.cuh"
#include "tensor/kv_dtype.h"

namespace millrace {
namespace {

constexpr int kWarps = kGeneralThreads / 32;
constexpr int kAtOnce = 4;  // positions whose reductions over the lanes overlap

struct GeneralParams {
  CudaAttentionArgs args;
  int sequences, heads, kv_heads, head_dim, block_size;
};

// Loads eight consecutive elements of a row.
__device__ void load8(const float* row, int at, float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = row[at + i];
}
template <class T>
__device__ void load8_half(const T* row, int at, float (&x)[8]) {
  const auto v = *reinterpret_cast<const Vector<T, 8>*>(row + at);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = to_float(v.at[i]);
}
__device__ void load8(const __half* row, int at, float (&x)[8]) { load8_half(row, at, x); }
__device__ void load8(const __nv_bfloat16* row, int at, float (&x)[8]) { load8_half(row, at, x); }

struct Q8Block {  // 32 numbers; blocks are aligned to two bytes only
  __half scale;
  int8_t quants[32];
};
__device__ void load8(const Q8Block* row, int at, float (&x)[8]) {
  const Q8Block& block = row[at / 32];
  const float scale = __half2float(block.scale);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = scale * static_cast<float>(block.quants[at % 32 + i]);
}

__device__ void load8(const __nv_fp8_e4m3* row, int at, float (&x)[8]) {
  const uint4 v = expand_fp8(*reinterpret_cast<const uint2*>(row + at));
  const auto* halves = reinterpret_cast<const __half*>(&v);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = __half2float(halves[i]);
}

template <class Kv>
struct RowLength {
  __device__ static int64_t of(int head_dim) { return head_dim; }
};
template <>
struct RowLength<Q8Block> {
  __device__ static int64_t of(int head_dim) { return head_dim / 32; }
};

__device__ float load_plain(const CudaMatrix& m, int64_t index) {
  return with_device_type(m.dtype,
                          [&](auto type) { return to_float(static_cast<const decltype(type)*>(m.data)[index]); });
}
__device__ void store_plain(const CudaMatrix& m, int64_t index, float x) {
  with_device_type(m.dtype, [&](auto type) {
    static_cast<decltype(type)*>(m.data)[index] = from_float<decltype(type)>(x);
    return 0;
  });
}

__device__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// One block per row and head. Each warp takes every kWarps-th group of positions, each lane kEights vectors of eight of
// the head.
template <class Kv, int kEights>
class RowAttention {
 public:
  __device__ RowAttention(const GeneralParams& p, int sequence, int row, int head)
      : p_(p), slice_(p.args.slices[sequence]), lane_(threadIdx.x % 32), warp_(threadIdx.x / 32) {
    table_ = p.args.tables + sequence * p.args.table_pitch;
    kv_head_ = head / (p.heads / p.kv_heads);
    last_ = slice_.past + row - slice_.first_row;
    first_ = p.args.window > 0 ? max(0, last_ - p.args.window + 1) : 0;
    for (int e = 0; e < kEights; ++e) {
      for (int i = 0; i < 8; ++i) {
        const int at = column(e) + i;
        q_[e][i] = at < p.head_dim ? load_plain(p.args.q, row * p.args.q.stride + head * p.head_dim + at) : 0.0f;
        o_[e][i] = 0;
      }
    }
  }

  __device__ void stream() {
    for (int position = first_ + warp_ * kAtOnce; position <= last_; position += kWarps * kAtOnce) {
      float score[kAtOnce], top = largest_;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        score[j] = position + j <= last_ ? this->score(position + j) : kMasked;
        top = fmaxf(top, score[j]);
      }
      const float factor = expf(largest_ - top);
      largest_ = top;
      total_ *= factor;
      for (int e = 0; e < kEights; ++e) {
        for (int i = 0; i < 8; ++i) o_[e][i] *= factor;
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (position + j <= last_) add(position + j, expf(score[j] - top));
      }
    }
  }

  // Adds up the warps' sums and writes the row. `space`: [kWarps][head_dim + 2].
  __device__ void write(float* space, int head, int64_t out) const {
    const int stride = p_.head_dim + 2;
    float* mine = space + warp_ * stride;
    for (int e = 0; e < kEights; ++e) {
      for (int i = 0; i < 8; ++i) {
        if (column(e) + i < p_.head_dim) mine[column(e) + i] = o_[e][i];
      }
    }
    if (lane_ == 0) mine[p_.head_dim] = largest_, mine[p_.head_dim + 1] = total_;
    __syncthreads();
    float top = kNoScore, total = 0;
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, space[w * stride + p_.head_dim]);
    for (int w = 0; w < kWarps; ++w) {
      total += space[w * stride + p_.head_dim + 1] * expf(space[w * stride + p_.head_dim] - top);
    }
    if (p_.args.sinks != nullptr) total += expf(p_.args.sinks[head] - top);
    for (int i = static_cast<int>(threadIdx.x); i < p_.head_dim; i += kGeneralThreads) {
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += space[w * stride + i] * expf(space[w * stride + p_.head_dim] - top);
      store_plain(p_.args.out, out + i, sum / total);
    }
  }

 private:
  __device__ int column(int e) const { return (e * 32 + lane_) * 8; }

  __device__ const Kv* fetch(const void* from, int position) const {
    const int64_t page = table_[position / p_.block_size];
    const int64_t row = (page * p_.kv_heads + kv_head_) * p_.block_size + position % p_.block_size;
    return static_cast<const Kv*>(from) + row * RowLength<Kv>::of(p_.head_dim);
  }

  __device__ float score(int position) const {
    const Kv* key = fetch(p_.args.keys, position);
    float dot = 0;
    for (int e = 0; e < kEights; ++e) {
      float x[8];
      if (column(e) >= p_.head_dim) continue;
      load8(key, column(e), x);
#pragma unroll
      for (int i = 0; i < 8; ++i) dot += q_[e][i] * x[i];
    }
    float s = fminf(fmaxf(warp_sum(dot) * p_.args.scale, -kScoreLimit), kScoreLimit);
    if (p_.args.softcap > 0) s = p_.args.softcap * tanhf(s / p_.args.softcap);
    return s;
  }

  __device__ void add(int position, float weight) {
    const Kv* value = fetch(p_.args.values, position);
    total_ += weight;
    for (int e = 0; e < kEights; ++e) {
      float x[8];
      if (column(e) >= p_.head_dim) continue;
      load8(value, column(e), x);
#pragma unroll
      for (int i = 0; i < 8; ++i) o_[e][i] += weight * x[i];
    }
  }

  const GeneralParams& p_;
  const DeviceSlice slice_;
  const int32_t* table_;
  int lane_, warp_, kv_head_, last_, first_;
  float q_[kEights][8], o_[kEights][8];
  float largest_ = kNoScore, total_ = 0;
};

template <class Kv, int kEights>
__global__ void __launch_bounds__(kGeneralThreads) general_attention(const __grid_constant__ GeneralParams p) {
  extern __shared__ float space[];
  allow_dependents();
  wait_for_predecessors();
  // Rows count from the first slice: these may be the prompts of a batch whose decodes come first.
  const int index = static_cast<int>(blockIdx.x) / p.heads, head = static_cast<int>(blockIdx.x) % p.heads;
  const Found found = find_point(p.sequences, index, [&](int i) { return max(p.args.slices[i].rows, 0); });
  if (found.sequence == p.sequences) return;
  const int row = p.args.slices[found.sequence].first_row + index - found.begin;
  RowAttention<Kv, kEights> attention(p, found.sequence, row, head);
  attention.stream();
  attention.write(space, head, row * p.args.out.stride + static_cast<int64_t>(head) * p.head_dim);
}

template <class Kv>
void (*kernel_for(int head_dim))(GeneralParams) {
  return head_dim <= 256 ? general_attention<Kv, 1> : general_attention<Kv, 2>;
}

}  // namespace

int general_shared_bytes(int head_dim) { return kWarps * (head_dim + 2) * 4; }

CudaError launch_general_attention(const CudaAttentionShape& shape, int grid, const CudaAttentionArgs& args,
                                   const CudaLaunch& launch) {
  const GeneralParams params{args, shape.sequences, shape.heads, shape.kv_heads, shape.head_dim, shape.block_size};
  void (*kernel)(GeneralParams) = kernel_for<float>(shape.head_dim);
  if (shape.kv == DType::F16) kernel = kernel_for<__half>(shape.head_dim);
  if (shape.kv == DType::BF16) kernel = kernel_for<__nv_bfloat16>(shape.head_dim);
  if (shape.kv == DType::Q8_0) kernel = kernel_for<Q8Block>(shape.head_dim);
  if (shape.kv == kFp8) kernel = kernel_for<__nv_fp8_e4m3>(shape.head_dim);
  return launch_kernel(kernel, dim3(static_cast<unsigned>(grid)), kGeneralThreads,
                       static_cast<size_t>(general_shared_bytes(shape.head_dim)), launch, params);
}

}  // namespace millrace
