#include <cuda_fp8.h>

#include "kernels/cuda/vectors.cuh"
#include "kernels/rope_write/cuda/launch.h"
#include "tensor/kv_dtype.h"

namespace millrace {
namespace {

constexpr int kWarps = 8;
constexpr int kMaxDim = 1024;
constexpr float kSmallest = 1e-30f;  // smaller maxima have a zero scale in f16, and 127 / x may overflow

// One head of one row as f32 in the shared memory of a warp.
class HeadRow {
 public:
  __device__ HeadRow(float* space, int length)
      : x_(space), length_(length), lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void load(const CudaMatrix& from, int64_t index) {
    for (int i = lane_ * 8; i < length_; i += 256)
      *reinterpret_cast<Eight*>(x_ + i) = load_eight<true>(from, index + i, 8);
    __syncwarp();
  }
  __device__ void rotate(RopeStyle style, const float* cosines, int rotary_dim) {
    const int half = rotary_dim / 2;
    for (int i = lane_; i < half; i += 32) {
      const int first = style == RopeStyle::Halves ? i : 2 * i,
                second = style == RopeStyle::Halves ? i + half : 2 * i + 1;
      const float a = x_[first], b = x_[second], cosine = cosines[i], sine = cosines[half + i];
      x_[first] = a * cosine - b * sine;
      x_[second] = b * cosine + a * sine;
    }
    __syncwarp();
  }
  __device__ void make_numbers(DType kept_as) {
    for (int i = lane_; i < length_; i += 32) x_[i] = as_number(x_[i], kept_as);
    __syncwarp();
  }
  __device__ void store(const CudaMatrix& to, int64_t index) const {
    for (int i = lane_ * 8; i < length_; i += 256)
      store_eight<true>(to, index + i, *reinterpret_cast<const Eight*>(x_ + i), 8);
  }
  // Q8_0 as in GGUF: blocks of 32 with an f16 scale, aligned to two bytes.
  __device__ void store_q8(void* to, int64_t row) const {
    for (int i = 0; i < length_; i += 32) {
      char* block = static_cast<char*>(to) + (row * length_ + i) / 32 * 34;
      const float x = x_[i + lane_], largest = warp_max(fabsf(x));
      const float inverse = largest > kSmallest ? 127 / largest : 0.0f;
      if (lane_ == 0) *reinterpret_cast<__half*>(block) = from_float<__half>(largest / 127);
      block[2 + lane_] = static_cast<char>(__float2int_rn(x * inverse));
    }
  }
  __device__ void store_fp8(void* to, int64_t row) const {
    auto* bytes = static_cast<__nv_fp8_storage_t*>(to) + row * length_;
    for (int i = lane_ * 4; i < length_; i += 128) {
      uint32_t four = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        four |= uint32_t{__nv_cvt_float_to_fp8(x_[i + j], __NV_SATFINITE, __NV_E4M3)} << 8 * j;
      }
      *reinterpret_cast<uint32_t*>(bytes + i) = four;
    }
  }

 private:
  float* x_;
  int length_, lane_;
};

// One warp per head of q, then k, then v; one row of the grid per row.
__global__ void __launch_bounds__(kWarps * 32) rope_write_kernel(const __grid_constant__ CudaRopeWriteArgs a) {
  extern __shared__ __align__(32) float shared[];
  allow_dependents();
  wait_for_predecessors();
  const int warp = static_cast<int>(threadIdx.x) / 32, head = static_cast<int>(blockIdx.y) * kWarps + warp;
  const int64_t row = blockIdx.x;
  if (head >= a.heads + 2 * a.kv_heads) return;
  const bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
  const int own = is_q ? head : is_v ? head - a.heads - a.kv_heads : head - a.heads;
  const CudaMatrix& from = is_q ? a.q : is_v ? a.v : a.k;

  const int32_t slot = a.keys != nullptr && !is_q ? a.row_slots[row] : -1;
  if (is_v && slot < 0) return;
  const int64_t at = row * from.stride + static_cast<int64_t>(own) * a.head_dim;
  HeadRow x(shared + warp * a.head_dim, a.head_dim);
  x.load(from, at);
  if (!is_v && a.angles != nullptr) x.rotate(a.style, a.angles + row * a.rotary_dim, a.rotary_dim);
  if (is_q || a.keys == nullptr) {
    x.store(from, at);
  } else if (slot >= 0) {
    const int64_t page = slot / a.block_size;
    const int64_t to = (page * a.kv_heads + own) * a.block_size + slot % a.block_size;
    void* cache = is_v ? a.values : a.keys;
    x.make_numbers(a.kv);
    if (a.kv == DType::Q8_0) {
      x.store_q8(cache, to);
    } else if (a.kv == kFp8) {
      x.store_fp8(cache, to);
    } else {
      x.store({cache, a.kv, a.head_dim}, to * a.head_dim);
    }
  }
}

// Eight rotation pairs of a head: first elements, second elements, and their offsets in the head. The pairs behind the
// rotated ones are neighbours in both styles.
struct EightPairs {
  bool rotated;
  int first, second;
  Eight a, b;

  __device__ EightPairs(bool halves, int pair, int rotary_dim)
      : rotated(2 * pair < rotary_dim),
        first(rotated && halves ? pair : 2 * pair),
        second(rotated && halves ? pair + rotary_dim / 2 : 2 * pair + 8) {}

  __device__ static void rotate_pair(float& x, float& y, float cosine, float sine) {
    const float before = x;
    x = x * cosine - y * sine;
    y = y * cosine + before * sine;
  }
  template <class T>
  __device__ void make_numbers() {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      a.at[i] = as_number<T>(a.at[i]);
      b.at[i] = as_number<T>(b.at[i]);
    }
  }
  __device__ void rotate(bool halves, const Eight& cosines, const Eight& sines) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (halves) {
        rotate_pair(a.at[i], b.at[i], cosines.at[i], sines.at[i]);
      } else {  // interleaved pairs: four in each vector of eight
        Eight& x = i < 4 ? a : b;
        rotate_pair(x.at[i % 4 * 2], x.at[i % 4 * 2 + 1], cosines.at[i], sines.at[i]);
      }
    }
  }
};

constexpr int kPairThreads = 128;

// For prompts, 16 bits in and out. One thread per eight pairs, grid.x = rows.
template <class T>
__global__ void __launch_bounds__(kPairThreads) rope_write_rows(const __grid_constant__ CudaRopeWriteArgs a) {
  allow_dependents();
  wait_for_predecessors();
  const int64_t row = blockIdx.x;
  const int pieces = a.head_dim / 16, heads = a.heads + 2 * a.kv_heads;
  const bool halves = a.style == RopeStyle::Halves;
  const int32_t slot = a.row_slots[row];
  const int64_t page = slot / a.block_size;
  const int i = static_cast<int>(blockIdx.y * kPairThreads + threadIdx.x), head = i / pieces, pair = i % pieces * 8;
  const bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
  if (head >= heads || (!is_q && slot < 0)) return;
  const int own = is_q ? head : (head - a.heads) % a.kv_heads;
  const CudaMatrix& matrix = is_q ? a.q : is_v ? a.v : a.k;
  T* from = static_cast<T*>(matrix.data) + row * matrix.stride + static_cast<int64_t>(own) * a.head_dim;
  EightPairs x(halves, pair, a.rotary_dim);
  if (is_q && !x.rotated) return;
  x.a = widen(from + x.first);
  x.b = widen(from + x.second);
  if (!is_v && x.rotated) {
    const float* angles = a.angles + row * a.rotary_dim + pair;
    x.rotate(halves, widen(angles), widen(angles + a.rotary_dim / 2));
  }
  if (!is_q) x.make_numbers<T>();
  const int64_t place = (page * a.kv_heads + own) * a.block_size + slot % a.block_size;
  T* to = is_q ? from : static_cast<T*>(is_v ? a.values : a.keys) + place * a.head_dim;
  narrow(to + x.first, x.a);
  narrow(to + x.second, x.b);
}

bool rotates_in_rows(const CudaRopeWriteArgs& a) {
  const bool one_type = a.q.dtype == a.kv && a.k.dtype == a.kv && a.v.dtype == a.kv;
  return one_type && (a.kv == DType::F16 || a.kv == DType::BF16) && a.keys != nullptr && a.angles != nullptr &&
         a.rotary_dim % 16 == 0 && a.head_dim % 16 == 0;
}

CudaError launch_rows_of_heads(const CudaRopeWriteArgs& a, const CudaLaunch& launch) {
  const int work = (a.heads + 2 * a.kv_heads) * (a.head_dim / 16);
  const dim3 grid(static_cast<unsigned>(a.rows), static_cast<unsigned>((work + kPairThreads - 1) / kPairThreads));
  return a.kv == DType::F16 ? launch_kernel(rope_write_rows<__half>, grid, kPairThreads, 0, launch, a)
                            : launch_kernel(rope_write_rows<__nv_bfloat16>, grid, kPairThreads, 0, launch, a);
}

}  // namespace

CudaError launch_cuda_rope_write(const CudaRopeWriteArgs& args, const CudaLaunch& launch) {
  if (args.rows <= 0) return cudaSuccess;
  const bool wide = moves_by_eights(args.q, args.head_dim) && moves_by_eights(args.k, args.head_dim) &&
                    moves_by_eights(args.v, args.head_dim);
  if (!wide || args.head_dim > kMaxDim || args.rotary_dim > args.head_dim || args.rotary_dim % 2 != 0 ||
      (args.kv == DType::Q8_0 && args.head_dim % 32 != 0)) {
    return cudaErrorInvalidValue;
  }
  if (rotates_in_rows(args)) return launch_rows_of_heads(args, launch);
  const int heads = args.heads + 2 * args.kv_heads;
  const dim3 grid(static_cast<unsigned>(args.rows), static_cast<unsigned>((heads + kWarps - 1) / kWarps));
  return launch_kernel(rope_write_kernel, grid, kWarps * 32, static_cast<size_t>(kWarps * args.head_dim) * 4, launch,
                       args);
}

}  // namespace millrace
