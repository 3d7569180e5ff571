// Quantized weights times one token on Hopper: every warp streams units through a ring of its own, so that warps of a
// block meet only when x is there and when their sums are added up.
//
// Blocks fill the device exactly and take tiles of 16 rows in turn; their warps take every eighth unit of those tiles.
// The rings are filled before the kernel in front has ended: what they hold is what hides the border between kernels.
// How one token is multiplied is told in packed_stream.cuh.
#pragma once

#include "kernels/linear/cuda/packed_stream.cuh"

namespace millrace {

inline constexpr int kGemvWarps = 8;
inline constexpr int kGemvThreads = 32 * kGemvWarps;
inline constexpr int kGemvBlocks = 2;            // on a multiprocessor
inline constexpr int kGemvTiles = 32;            // whose sums a block keeps before it stores them
inline constexpr int kGemvRoom = 112 * 1024;     // bytes of shared memory for a block
inline constexpr int kGemvRingRoom = 80 * 1024;  // of which for the rings
inline constexpr int kGemvMaxNormed = 8192;      // columns of x whose norm a block computes

struct PackedGemvParams {
  const uint8_t* weights;
  const void* x;      // bf16; f32 where there is a norm
  const float* norm;  // [k] or null: the RMS norm of x is what is multiplied
  float epsilon;
  int k, units;  // units along K
  LinearOutput out;
};

// The same in all lanes, and the compiler knows: branches on it are not divergent.
__device__ __forceinline__ int warp_index() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0); }

template <DType kFormat>
inline constexpr int kGemvSlots = kGemvRingRoom / (kGemvWarps * Unit<kFormat>::kSize);

// x of one token in shared memory as f16, in the order of HalfX. A power of two for each unit brings its largest number
// to 2^14.
template <DType kFormat>
struct UnitX {
  using U = Unit<kFormat>;
  static constexpr int kUnitBytes = kUnitColumns * 2;
  static constexpr int kSums = U::kMinimum ? 2 : 1;

  uint8_t* x;      // [unit][block][t][4 pairs]
  float* starts;   // [unit][run]: what takes the offset of the decoded weights out again
  float* plain;    // the same of plain sums of x, for formats with minima
  float* factors;  // [unit] what a sum of products is to be multiplied with

  static __host__ __device__ int bytes(int units) { return units * (kUnitBytes + (U::kRuns * kSums + 1) * 4); }

  __device__ UnitX(uint8_t* shared, int units) : x(shared) {
    starts = reinterpret_cast<float*>(shared + units * kUnitBytes);
    plain = starts + (kSums - 1) * units * U::kRuns;
    factors = plain + units * U::kRuns;
  }

  // A warp puts one unit there: each lane has eight neighbours of it.
  __device__ __forceinline__ void put(const float (&v)[8], int unit) const {
    constexpr int kLanes = U::kRun / 8;  // that share a run
    const int lane = threadIdx.x % 32, odd = lane % 2;
    float peak = 0, sum = 0;
#pragma unroll
    for (const float value : v) peak = fmaxf(peak, fabsf(value));
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, mask));
    const int exponent = min(max(static_cast<int>(__float_as_uint(peak) >> 23) - 127, -100), 127);
    const float scale = __uint_as_float(static_cast<uint32_t>(127 + 14 - exponent) << 23);
    const float taken = !U::kWide && odd ? scale * 0.0625f : scale;
    auto* to = reinterpret_cast<uint32_t*>(x + unit * kUnitBytes + lane / 4 * 64) + lane % 4;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      // What is summed up is what is multiplied: else the offsets would not cancel.
      const __half2 halves = __floats2half2_rn(v[2 * t] * taken, v[2 * t + 1] * taken);
      to[4 * t] = *reinterpret_cast<const uint32_t*>(&halves);
      const float2 two = __half22float2(halves);
      sum += two.x + two.y;
    }
    if (!U::kWide && odd) sum *= 16;
    float start = -sum * (U::kStoredZero + (!U::kWide && odd ? 64.f : 1024.f));
#pragma unroll
    for (int mask = 1; mask < kLanes; mask *= 2) {
      start += __shfl_xor_sync(0xffffffffu, start, mask);
      sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    }
    if (lane % kLanes == 0) {
      starts[unit * U::kRuns + lane / kLanes] = start;
      if constexpr (U::kMinimum) plain[unit * U::kRuns + lane / kLanes] = sum;
    }
    if (lane == 0) factors[unit] = __uint_as_float(static_cast<uint32_t>(127 - 14 + exponent) << 23);
  }
};

__device__ __forceinline__ void unpack_eight(uint4 from, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = unpack2<__nv_bfloat16>(word(from, i));
    to[2 * i] = two.x;
    to[2 * i + 1] = two.y;
  }
}

// x as it is. All loads of a long row are under way at once.
template <DType kFormat>
__device__ __forceinline__ void place_plain(const PackedGemvParams& p, const UnitX<kFormat>& staged) {
  constexpr int kAhead = 8;
  const int warp = warp_index(), lane = threadIdx.x % 32;
  wait_for_previous_kernel();
#pragma unroll 1
  for (int first = warp; first < p.units; first += kAhead * kGemvWarps) {
    uint4 rows[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int column = (first + i * kGemvWarps) * kUnitColumns + lane * 8;
      rows[i] = column < p.k ? load_shared_input(static_cast<const __nv_bfloat16*>(p.x) + column) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i * kGemvWarps >= p.units) break;
      float v[8];
      unpack_eight(rows[i], v);
      staged.put(v, first + i * kGemvWarps);
    }
  }
}

struct EightFloats {
  float4 low, high;
  __device__ __forceinline__ static EightFloats load(const float* from) {
    return {__ldcg(reinterpret_cast<const float4*>(from)), __ldcg(reinterpret_cast<const float4*>(from) + 1)};
  }
};

__device__ __forceinline__ float squares_of(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }

// The RMS norm of x. kEach: units for each warp, whose norm weights are fetched before the kernel that writes x ends.
template <DType kFormat, int kEach>
__device__ __forceinline__ void place_normed(const PackedGemvParams& p, const UnitX<kFormat>& staged) {
  __shared__ float parts[kGemvWarps];
  const int warp = warp_index(), lane = threadIdx.x % 32;
  const auto column = [&](int e) { return (warp + e * kGemvWarps) * kUnitColumns + lane * 8; };
  EightFloats weights[kEach], x[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    weights[e] = column(e) < p.k ? EightFloats::load(p.norm + column(e)) : EightFloats{};
  }
  wait_for_previous_kernel();
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    x[e] = column(e) < p.k ? EightFloats::load(static_cast<const float*>(p.x) + column(e)) : EightFloats{};
  }
  float squares = 0;
#pragma unroll
  for (int e = 0; e < kEach; ++e) squares += squares_of(x[e].low) + squares_of(x[e].high);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, mask);
  if (lane == 0) parts[warp] = squares;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int i = 0; i < kGemvWarps; ++i) total += parts[i];
  const float inverse = rsqrtf(total / static_cast<float>(p.k) + p.epsilon);
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    if (warp + e * kGemvWarps >= p.units) break;
    const EightFloats &a = x[e], &w = weights[e];
    const float v[8] = {a.low.x * inverse * w.low.x,   a.low.y * inverse * w.low.y,   a.low.z * inverse * w.low.z,
                        a.low.w * inverse * w.low.w,   a.high.x * inverse * w.high.x, a.high.y * inverse * w.high.y,
                        a.high.z * inverse * w.high.z, a.high.w * inverse * w.high.w};
    staged.put(v, warp + e * kGemvWarps);
  }
}

// Where a warp is on its way: a unit of one of its block's tiles. advance() returns how many tiles were left behind.
struct UnitPlace {
  int tile = 0, unit;
  __device__ __forceinline__ UnitPlace(int first, int units) : unit(first) { wrap(units); }
  __device__ __forceinline__ int advance(int units) {
    unit += kGemvWarps;
    return wrap(units);
  }

 private:
  __device__ __forceinline__ int wrap(int units) {
    const int before = tile;
    while (unit >= units) {
      unit -= units;
      ++tile;
    }
    return tile - before;
  }
};

// A warp's ring of units. Lanes copy sixteen bytes each; a group of copies is a unit.
template <DType kFormat>
class UnitRing {
 public:
  static constexpr int kSlots = kGemvSlots<kFormat>;

  __device__ __forceinline__ UnitRing(const PackedGemvParams& p, uint8_t* ring, int tiles)
      : ring_(ring),
        next_(warp_index(), p.units),
        units_(p.units),
        tiles_(tiles),
        skipped_(static_cast<int64_t>(gridDim.x - 1) * p.units * kSize) {
    const int64_t tile = blockIdx.x + static_cast<int64_t>(next_.tile) * gridDim.x;
    from_ = p.weights + (tile * p.units + next_.unit) * kSize + threadIdx.x % 32 * 16;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) fetch();
  }

  // The unit that has come; refill() when all lanes have read it.
  __device__ __forceinline__ const uint8_t* wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 1) : "memory");
    __syncwarp();
    return ring_ + at_ * kSize;
  }
  __device__ __forceinline__ void refill() {
    __syncwarp();
    fetch();
  }

 private:
  static constexpr int kSize = Unit<kFormat>::kSize;

  // The last groups are empty: whoever waits counts groups.
  __device__ __forceinline__ void fetch() {
    if (next_.tile < tiles_) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const uint32_t to = shared_address(ring_ + at_ * kSize) + static_cast<uint32_t>(lane * 16);
#pragma unroll
      for (int i = 0; i < kSize; i += 512) {
        if (i + 512 <= kSize || i + lane * 16 < kSize) copy(to + static_cast<uint32_t>(i), from_ + i);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    from_ += kGemvWarps * kSize + next_.advance(units_) * skipped_;
    at_ = at_ + 1 == kSlots ? 0 : at_ + 1;
  }

  __device__ __forceinline__ void copy(uint32_t to, const uint8_t* from) const {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy_)
                 : "memory");
  }

  const uint8_t* from_;  // the lane's first bytes of the next unit
  uint8_t* ring_;
  UnitPlace next_;
  int units_, tiles_;
  int64_t skipped_;  // bytes between the tiles of a block
  int at_ = 0;       // the slot that is filled or read next
  uint64_t policy_ = evict_first_policy();
};

__device__ __forceinline__ float load_output(const LinearOutput& out, int column) {
  if (out.type == DType::BF16) return to_float(static_cast<const __nv_bfloat16*>(out.y)[column]);
  if (out.type == DType::F16) return to_float(static_cast<const __half*>(out.y)[column]);
  return static_cast<const float*>(out.y)[column];
}

// Outputs of a block's tiles in turn, one for each thread: 16 of a tile, or 8 where gate and up become one.
class TileOutputs {
 public:
  __device__ __forceinline__ TileOutputs(const PackedGemvParams& p) : out_(p.out), each_(p.out.gate_up ? 8 : 16) {
    // Where there is something to add to, the first is asked for long before it is needed.
    const int column = column_of(static_cast<int>(threadIdx.x));
    if (out_.accumulate && column < columns()) first_ = load_output(out_, column);
  }

  // Adds up what the warps left of tiles [first, end).
  __device__ __forceinline__ void store(const float* partials, int first, int end) const {
#pragma unroll 1
    for (int item = first * each_ + static_cast<int>(threadIdx.x); item < end * each_; item += kGemvThreads) {
      const float* from = partials + (item / each_ - first) * kGemvWarps * kTileRows + item % each_;
      const int column = column_of(item);
      if (column >= columns()) continue;
      const int row = out_.gate_up ? column / 8 * 16 + column % 8 : column;
      float y = total(from) + bias(row);
      if (out_.gate_up) {
        y = silu_times(y, total(from + 8) + bias(row + 8));
      } else if (out_.accumulate) {
        y += item < kGemvThreads ? first_ : load_output(out_, column);
      }
      LinearOutput out = out_;
      out.accumulate = false;
      const float squares = store_four(out, 0, column, {y, 0, 0, 0}, 1);
      if (out_.sum_squares != nullptr) atomicAdd(out_.sum_squares, squares);
    }
  }

 private:
  __device__ __forceinline__ int columns() const { return out_.gate_up ? out_.n / 2 : out_.n; }
  __device__ __forceinline__ int column_of(int item) const {
    return (static_cast<int>(blockIdx.x) + item / each_ * static_cast<int>(gridDim.x)) * each_ + item % each_;
  }
  __device__ __forceinline__ float bias(int row) const { return out_.bias != nullptr ? out_.bias[row] : 0.f; }
  __device__ static __forceinline__ float total(const float* from) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kGemvWarps; ++warp) sum += from[warp * kTileRows];
    return sum;
  }

  const LinearOutput& out_;
  int each_;
  float first_ = 0;
};

// A warp's sums of a tile: its rows in order.
__device__ __forceinline__ void put_rows(float* place, int lane, float (&sums)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
    if (lane % 4 == 0) place[lane / 4 + 8 * half] = sums[half];
    sums[half] = 0;
  }
}

// Where a tile has fewer units than a block has warps, not every warp has a part of every tile.
__device__ __forceinline__ void clear_sums(float* partials, int tiles) {
  for (int i = static_cast<int>(threadIdx.x); i < tiles * kGemvWarps * kTileRows; i += kGemvThreads) partials[i] = 0;
}

// kNormEach: units of the norm for each warp; 0: no norm.
template <DType kFormat, int kNormEach>
__global__ void __launch_bounds__(kGemvThreads, kGemvBlocks) packed_gemv(const __grid_constant__ PackedGemvParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build never launch this
  using U = Unit<kFormat>;
  extern __shared__ __align__(128) uint8_t rings[];
  const int warp = warp_index(), lane = threadIdx.x % 32;
  const int all = (p.out.n + kTileRows - 1) / kTileRows;
  const int tiles =
      (all - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  UnitRing<kFormat> ring(p, rings + warp * UnitRing<kFormat>::kSlots * U::kSize, tiles);
  uint8_t* zeros = rings + kGemvWarps * UnitRing<kFormat>::kSlots * U::kSize;
  const UnitX<kFormat> staged(zeros + kZeroBytes, p.units);
  float* partials = staged.factors + p.units;
  if (threadIdx.x < kZeroBytes / 4) reinterpret_cast<uint32_t*>(zeros)[threadIdx.x] = 0;
  if (p.units < kGemvWarps) clear_sums(partials, min(tiles, kGemvTiles));
  if constexpr (kNormEach == 0) {
    place_plain<kFormat>(p, staged);
  } else {
    place_normed<kFormat, kNormEach>(p, staged);
  }
  __syncthreads();
  let_next_kernel_start();
  const TileOutputs outputs(p);
  UnitPlace place(warp, p.units);
  float sums[2] = {0, 0};
#pragma unroll 1
  for (int first = 0; first < tiles; first += kGemvTiles) {
    const int end = min(first + kGemvTiles, tiles);
#pragma unroll 1
    while (place.tile < end) {
      const uint8_t* from = ring.wait();
      UnitFragment<kFormat> unit;
      RunScales<kFormat> scales;
      unit.load_bits(from, lane);
      scales.load(from, lane);
      ring.refill();
      float products[2] = {0, 0};
      multiply_unit<kFormat>(unit, scales, staged.x + place.unit * staged.kUnitBytes + lane % 4 * 16,
                             zeros + lane % 4 * 16, staged.starts + place.unit * U::kRuns,
                             staged.plain + place.unit * U::kRuns, lane, products);
      const float factor = staged.factors[place.unit];
#pragma unroll
      for (int half = 0; half < 2; ++half) sums[half] = fmaf(factor, products[half], sums[half]);
      const int tile = place.tile;
      if (place.advance(p.units) > 0) put_rows(partials + ((tile - first) * kGemvWarps + warp) * kTileRows, lane, sums);
    }
    __syncthreads();
    outputs.store(partials, first, end);
    if (end == tiles) break;
    __syncthreads();
    if (p.units >= kGemvWarps) continue;
    clear_sums(partials, kGemvTiles);
    __syncthreads();
  }
#endif
}

// Shared memory of a block: rings, zeros, x, and the sums of its tiles.
template <DType kFormat>
size_t gemv_shared_bytes(int units, int tiles) {
  return static_cast<size_t>(kGemvWarps * kGemvSlots<kFormat> * Unit<kFormat>::kSize + kZeroBytes +
                             UnitX<kFormat>::bytes(units) + min(tiles, kGemvTiles) * kGemvWarps * kTileRows * 4);
}

template <DType kFormat>
cudaError_t launch_gemv(const PackedGemvParams& params, const LaunchShape& shape, const CudaStep& step) {
  if (params.norm == nullptr) return launch_kernel(packed_gemv<kFormat, 0>, shape, step, params);
  return params.k <= kGemvMaxNormed / 2 ? launch_kernel(packed_gemv<kFormat, 2>, shape, step, params)
                                        : launch_kernel(packed_gemv<kFormat, 4>, shape, step, params);
}

}  // namespace millrace
