// Quantized weights on Hopper for one to four tokens: a product for each (token, choice) pair, as in linear/cuda/
// quantized/gemv.cuh. A block has one multiprocessor for itself. Its 16 warps share the units of its tiles; each
// streams its units through a ring of its own.
//
// Without `sum` a block has some tiles of one pair; in a gated layer tiles of gate and of up alternate. With `sum` a
// block has the same tiles of all pairs of a row and adds them up, so that no second kernel does. Where that gives even
// shares, two blocks of a cluster take half of the pairs each and add up each other's products. If the routing is
// settled, a block fills its rings while the kernel in front still computes x.
#pragma once

#include "kernels/grouped_linear/cuda/tile_copies.cuh"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/quantized/gemv_outputs.cuh"

namespace millrace {

inline constexpr int kPairsThreads = 32 * kRingWarps;
inline constexpr int kPairsRings = 112 * 1024;  // bytes; no second block fits beside it
inline constexpr int kPairsMostPerRow = 32;

template <DType kFormat>
inline constexpr int kPairsSlots = kPairsRings / (kRingWarps * Unit<kFormat>::kSize);  // of each warp

struct PackedPairsParams {
  GroupedParams p;
  int units;          // along K
  TileShares shares;  // tiles of a matrix that the blocks of a pair, or the clusters of a row, have
  int split;          // blocks of a cluster, which share the pairs of a row; 1 without `sum`
};

// The units of a block's tiles: warp w takes those with index w, w + 16, ... `first_unit(tile)` is the address of a
// tile's first unit, or null: such a tile is not read, and nobody uses its sums.
template <DType kFormat, class FirstUnit>
class TileStream {
 public:
  static constexpr int kSize = Unit<kFormat>::kSize, kSlots = kPairsSlots<kFormat>;

  __device__ __forceinline__ TileStream(uint8_t* rings, int tiles, int units, const void* any, FirstUnit first_unit)
      : first_unit_(first_unit),
        any_(static_cast<const uint8_t*>(any)),
        ring_(rings + warp_index() * kSlots * kSize),
        next_(warp_index(), units),
        tiles_(tiles),
        units_(units) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) fetch();
  }

  // The oldest unit in flight. Call refill() after all lanes have read it.
  __device__ __forceinline__ const uint8_t* wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 1) : "memory");
    __syncwarp();
    return ring_ + at_ * kSize;
  }
  __device__ __forceinline__ void refill() {
    __syncwarp();
    fetch();
  }

 private:
  // Commits empty groups at the end, because wait() counts groups.
  __device__ __forceinline__ void fetch() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint8_t* first = next_.tile < tiles_ ? first_unit_(next_.tile) : nullptr;
    const bool live = first != nullptr;
    const uint8_t* from = live ? first + next_.unit * kSize : any_;
#pragma unroll
    for (int i = lane * 16; i < kSize; i += 512) copy_if(ring_ + at_ * kSize + i, from + i, live);
    asm volatile("cp.async.commit_group;" ::: "memory");
    next_.advance(units_);
    at_ = at_ + 1 == kSlots ? 0 : at_ + 1;
  }

  FirstUnit first_unit_;
  const uint8_t* any_;  // a unit that may be read
  uint8_t* ring_;
  UnitPlace<> next_;
  int tiles_, units_;
  int at_ = 0;  // slot to fill or read next
};

// Units of rows of x on their way to shared memory: a warp loads kEach units before it places the first one. Rows begin
// at `first_row`; `count` is the number of units of all rows, one row after the other.
template <DType kFormat>
struct UnitsInFlight {
  static constexpr int kEach = 4, kStep = kEach * kRingWarps;
  uint4 eights[kEach];

  __device__ __forceinline__ void load(const PackedPairsParams& f, int first_row, int count, int first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto* x = reinterpret_cast<const __nv_bfloat16*>(f.p.x) + first_row * f.p.x_stride;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int at = first + e * kRingWarps + warp_index(), row = at / f.units;
      const int column = (at - row * f.units) * kUnitColumns + lane * 8;
      const bool live = at < count && column < f.p.k;
      eights[e] = load_shared_input_if(live ? x + row * f.p.x_stride + column : x, live);
    }
  }
  __device__ __forceinline__ void place(int count, int first, const GemvX<kFormat>& staged) const {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int at = first + e * kRingWarps + warp_index();
      if (at >= count) break;
      float v[8];
      unpack_eight(eights[e], v);
      staged.put(v, 0, at, true);
    }
  }
  // The units behind the first kStep ones.
  __device__ __forceinline__ void stage_rest(const PackedPairsParams& f, int first_row, int count,
                                             const GemvX<kFormat>& staged) {
#pragma unroll 1
    for (int first = kStep; first < count; first += kStep) {
      load(f, first_row, count, first);
      place(count, first, staged);
    }
  }
};

// Multiplies all units of the stream. Partial sums: [tile][parts][16 rows]; `unit_of_x(tile)`: first staged unit.
template <DType kFormat, class Stream, class UnitOfX>
__device__ __forceinline__ void multiply_stream(Stream& stream, int tiles, int units, const GemvX<kFormat>& staged,
                                                UnitOfX unit_of_x, float* partials, int parts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  UnitPlace<> place(warp_index(), units);
  float sums[2] = {0, 0};
#pragma unroll 1
  while (place.tile < tiles) {
    UnitFragment<kFormat> unit;
    typename GemvX<kFormat>::Scales scales;
    typename GemvX<kFormat>::Own own;
    own.load(staged, unit_of_x(place.tile) + place.unit, lane);
    const uint8_t* from = stream.wait();
    unit.load_bits(from, lane);
    scales.load(from, lane);
    stream.refill();
    multiply_unit(unit, scales, own, lane, sums);
    const int at = place.tile * parts + (place.unit & (kRingWarps - 1));
    if (place.advance(units) > 0) put_rows(partials + at * kTileRows, lane, sums);
  }
}

__device__ __forceinline__ float sum_of_parts(const float* partials, int tile, int row, int parts) {
  const float* from = partials + tile * parts * kTileRows + row;
  float sum = 0;
#pragma unroll  // reads all of them at once
  for (int part = 0; part < kRingWarps; ++part) {
    if (part < parts) sum += from[part * kTileRows];
  }
  return sum;
}

__device__ __forceinline__ float bias_of(const GroupedParams& p, int group, int row) {
  return p.bias != nullptr ? p.bias[static_cast<int64_t>(group) * p.n + row] : 0;
}

template <DType kFormat>
__global__ void __launch_bounds__(kPairsThreads, 1) grouped_packed_pairs(const __grid_constant__ PackedPairsParams f) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build never launch this kernel
  extern __shared__ __align__(128) uint8_t rings[];
  const GroupedParams& p = f.p;
  const int block = static_cast<int>(blockIdx.x), together = p.half > 0 ? 2 : 1;
  const int first = f.shares.first(block), tiles = f.shares.count(block) * together, parts = min(f.units, kRingWarps);
  const int pair = static_cast<int>(blockIdx.y);
  wait_and_let_next_kernel_start();
  UnitsInFlight<kFormat> x;  // on its way while the group is looked up
  x.load(f, p.x_row(pair), f.units, 0);
  const int group = p.group_of(pair);
  if (group < 0) return;
  const auto* matrix = reinterpret_cast<const uint8_t*>(p.matrix(group));
  const int64_t tile_bytes = static_cast<int64_t>(f.units) * Unit<kFormat>::kSize;
  const auto first_unit = [&](int tile) -> const uint8_t* {
    const int row_tile = p.half > 0 ? first + tile / 2 + tile % 2 * (p.half / kUnitRows) : first + tile;
    return matrix + row_tile * tile_bytes;
  };
  TileStream<kFormat, decltype(first_unit)> stream(rings, tiles, f.units, matrix, first_unit);
  // The thread's first output and its biases, loaded early.
  const int own_output = min(first * kTileRows + static_cast<int>(threadIdx.x), p.outputs - 1);
  const float own_bias = bias_of(p, group, own_output);
  const float own_up_bias = p.half > 0 ? bias_of(p, group, p.half + own_output) : 0;
  const GemvX<kFormat> staged(rings + kRingWarps * stream.kSlots * stream.kSize, f.units);
  float* partials = staged.end(f.units);
  x.place(f.units, 0, staged);
  x.stage_rest(f, p.x_row(pair), f.units, staged);
  __syncthreads();
  multiply_stream<kFormat>(
      stream, tiles, f.units, staged, [](int) { return 0; }, partials, parts);
  __syncthreads();
  for (int item = static_cast<int>(threadIdx.x); item < tiles / together * kTileRows; item += kPairsThreads) {
    const int tile = item / kTileRows, row = item % kTileRows, output = first * kTileRows + item;
    if (output >= p.outputs) break;
    const bool own = item == static_cast<int>(threadIdx.x);
    const float gate =
        sum_of_parts(partials, tile * together, row, parts) + (own ? own_bias : bias_of(p, group, output));
    float value = gate;
    if (together == 2) {
      const float up_bias = own ? own_up_bias : bias_of(p, group, p.half + output);
      value = gated_value(p, gate, sum_of_parts(partials, tile * 2 + 1, row, parts) + up_bias);
    }
    p.y.set(pair, output, value);
  }
#endif
}

// A tile of a block with `sum`: the same rows of the matrices of all of its choices follow each other.
struct TileOfChoice {
  const uint8_t* first_unit;  // null: the group is elsewhere
  int group;                  // -1: elsewhere
  int x;                      // first staged unit of x
  float weight;

  static __host__ __device__ int bytes(int tiles) {
    return (tiles * static_cast<int>(sizeof(TileOfChoice)) + 15) / 16 * 16;
  }
};

// The choices of a row that the blocks of a cluster have.
struct ChoiceShares {
  int each, per_row;  // each: of all blocks but the last one

  __host__ __device__ ChoiceShares(int per_row, int split) : each((per_row + split - 1) / split), per_row(per_row) {}
  __device__ int first(int rank) const { return rank * each; }
  __device__ int count(int rank) const { return min(each, per_row - rank * each); }
};

template <DType kFormat>
__global__ void __launch_bounds__(kPairsThreads, 1) sum_packed_pairs(const __grid_constant__ PackedPairsParams f) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) uint8_t rings[];
  const GroupedParams& p = f.p;
  const int rank = f.split > 1 ? cluster_rank() : 0, cluster = static_cast<int>(blockIdx.x) / f.split;
  const int first = f.shares.first(cluster), count = f.shares.count(cluster), parts = min(f.units, kRingWarps);
  const ChoiceShares choices(p.per_row, f.split);
  const int row = static_cast<int>(blockIdx.y), own_choices = choices.count(rank);
  const int first_pair = row * p.per_row + choices.first(rank);
  const int tiles = count * own_choices, thread = static_cast<int>(threadIdx.x);
  auto* of_tile = reinterpret_cast<TileOfChoice*>(rings + kRingWarps * kPairsSlots<kFormat> * Unit<kFormat>::kSize);
  begin_grouped(p);
  const int64_t tile_bytes = static_cast<int64_t>(f.units) * Unit<kFormat>::kSize;
  for (int tile = thread; tile < tiles; tile += kPairsThreads) {
    const int of_matrix = tile / own_choices, choice = tile - of_matrix * own_choices;
    const int group = p.group_of(first_pair + choice);
    const float weight = __ldcg(p.pair_weights + first_pair + choice);
    const auto* matrix = reinterpret_cast<const uint8_t*>(p.matrix(max(group, 0)));
    of_tile[tile] = {group < 0 ? nullptr : matrix + (first + of_matrix) * tile_bytes, group, choice * f.units, weight};
  }
  __syncthreads();
  const auto first_unit = [&](int tile) { return of_tile[tile].first_unit; };
  TileStream<kFormat, decltype(first_unit)> stream(rings, tiles, f.units, p.weights, first_unit);
  // The output of the thread's first product and its biases, loaded early.
  const int own_tile = min(thread / kTileRows, tiles - 1);
  const int own_output = min((first + own_tile / own_choices) * kTileRows + thread % kTileRows, p.outputs - 1);
  const float own_bias = bias_of(p, max(of_tile[own_tile].group, 0), own_output);
  wait_for_input(p);
  // All blocks of a cluster have the same places in shared memory.
  const GemvX<kFormat> staged(reinterpret_cast<uint8_t*>(of_tile) + TileOfChoice::bytes(count * choices.each),
                              choices.each * f.units);
  float* partials = staged.end(choices.each * f.units);  // [tile][choice][part][16 rows]
  const int staged_units = own_choices * f.units;
  UnitsInFlight<kFormat> x;
  x.load(f, first_pair, staged_units, 0);
  // Blocks of a cluster store the outputs of its tiles in turn.
  const auto output_of = [&](int item) {
    const int tile = item / kTileRows * f.split + rank, output = (first + tile) * kTileRows + item % kTileRows;
    return tile < count && output < p.outputs ? output : -1;
  };
  const float before = output_of(thread) >= 0 ? p.y.get(row, output_of(thread)) : 0;
  x.place(staged_units, 0, staged);
  x.stage_rest(f, first_pair, staged_units, staged);
  __syncthreads();
  const auto unit_of_x = [&](int tile) { return of_tile[tile].x; };
  multiply_stream<kFormat>(stream, tiles, f.units, staged, unit_of_x, partials, parts);
  __syncthreads();
  for (int item = thread; item < tiles * kTileRows; item += kPairsThreads) {
    const int tile = item / kTileRows, output = (first + tile / own_choices) * kTileRows + item % kTileRows;
    const TileOfChoice& of = of_tile[tile];
    float value = 0;
    if (of.group >= 0 && output < p.outputs) {
      const float bias = item == thread ? own_bias : bias_of(p, of.group, output);
      value = (sum_of_parts(partials, tile, item % kTileRows, parts) + bias) * of.weight;
    }
    partials[tile * parts * kTileRows + item % kTileRows] = value;  // in place of the first part
  }
  __syncwarp();
  if (f.split > 1) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
  for (int item = thread; output_of(item) >= 0; item += kPairsThreads) {
    const int output = output_of(item), of_matrix = output / kTileRows - first;
    float sum = 0;
    for (int block = 0; block < f.split; ++block) {
      const int count_there = choices.count(block);
      const float* there = partials + of_matrix * count_there * parts * kTileRows + output % kTileRows;
#pragma unroll 4
      for (int choice = 0; choice < count_there; ++choice) {
        const float* value = there + choice * parts * kTileRows;
        sum += block == rank ? *value : load_cluster_one(value, block);
      }
    }
    p.y.set(row, output, (item == thread ? before : p.y.get(row, output)) + sum);
  }
  __syncwarp();
  if (f.split > 1) cluster_barrier();  // a block may not end while another one reads its products
#endif
}

// `tiles`: most of a block, all of its pairs counted.
template <DType kFormat>
int packed_pairs_bytes(int staged_units, int tiles, int units, bool sum) {
  constexpr int kRing = kRingWarps * Unit<kFormat>::kSize;
  return kPairsRings / kRing * kRing + (sum ? TileOfChoice::bytes(tiles) : 0) + GemvX<kFormat>::bytes(staged_units) +
         tiles * min(units, kRingWarps) * kTileRows * 4;
}

template <DType kFormat>
cudaError_t launch_packed_pairs(const PackedPairsParams& params, LaunchShape shape, const CudaStep& step) {
  return params.p.sum ? launch_kernel(sum_packed_pairs<kFormat>, shape, step, params)
                      : launch_kernel(grouped_packed_pairs<kFormat>, shape, step, params);
}

// hopper_*.cu instantiate the formats, so that they compile in parallel.
#define MILLRACE_GROUPED_PAIRS(PREFIX, F) \
  PREFIX template cudaError_t launch_packed_pairs<DType::F>(const PackedPairsParams&, LaunchShape, const CudaStep&);

}  // namespace millrace
