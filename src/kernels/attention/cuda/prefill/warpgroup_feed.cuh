// The loading warps of a Hopper prefill block: one starts bulk copies of keys and values, three load queries.
#pragma once

#include "kernels/attention/cuda/prefill/warpgroup_space.cuh"
#include "kernels/cuda/vectors.cuh"

namespace millrace {

// One warp; lane i copies box i of every tile. It looks up the location of the next box before a slot is free.
template <int kDim>
class KeyValueFeed {
  using Config = WarpgroupConfig<kDim>;
  using Space = WarpgroupSpace<kDim>;

 public:
  __device__ KeyValueFeed(const WarpgroupParams& w, const Space& space) : w_(w), space_(space) {
    lane_ = static_cast<int>(threadIdx.x) % 32;
    box_ = lane_ * w.box_rows;
  }

  __device__ void run() {
    for_each_tile<kDim>(w_.prefill, [&](const PrefillTile& tile, int first_position, int key_tiles) {
      feed(tile, first_position, key_tiles);
    });
  }

 private:
  __device__ void feed(const PrefillTile& tile, int position, int key_tiles) {
    int row = row_of(tile, position);
    for (int t = 0; t < key_tiles; ++t, at_ = at_.next()) {
      position += Config::kTokens;
      const int next = t + 1 < key_tiles ? row_of(tile, position) : 0;
      copy(w_.keys, space_.key_tile(at_), row, space_.keys_empty(at_), space_.keys_full(at_));
      copy(w_.values, space_.value_tile(at_), row, space_.values_empty(at_), space_.values_full(at_));
      row = next;
    }
  }

  __device__ int row_of(const PrefillTile& tile, int first_position) const {
    constexpr int kNowhere = 0x7fffffff;  // beyond the end of the matrix: reads as zeros
    const PrefillParams& p = w_.prefill;
    const int position = first_position + box_;
    if (box_ >= Config::kTokens || position >= tile.slice.past + tile.slice.rows) return kNowhere;
    const int page = p.args.tables[tile.sequence * p.args.table_pitch + position / p.block_size];
    return (page * p.kv_heads + tile.head / (p.heads / p.kv_heads)) * p.block_size + position % p.block_size;
  }

  __device__ void copy(const CUtensorMap& map, uint32_t to, int row, const CopyBarrier& empty,
                       const CopyBarrier& full) {
    empty.wait(at_.parity ^ 1);
    if (lane_ == 0) full.expect(Config::kKeyBytes);
    __syncwarp();
    if (box_ >= Config::kTokens) return;
    for (int panel = 0; panel < Config::kKeyPanels; ++panel) {
      copy_box(to + panel * Config::kPanelBytes + box_ * 128, &map, panel * 64, row, full);
    }
  }

  const WarpgroupParams& w_;
  const Space& space_;
  int lane_, box_;  // the rows of a tile that the lane copies
  typename Space::Place at_;
};

// Three warps: convert queries to the type of the keys, store them row by row in their panels, and write the TileNote.
template <class T, class Space>
class QueryWriter {
 public:
  __device__ explicit QueryWriter(const Space& space) : space_(space), thread_(static_cast<int>(threadIdx.x) - 32) {}

 protected:
  using Config = typename Space::Config;
  static constexpr int kThreads = Config::kLoaders * 32;

  __device__ void await_room() const { space_.queries_empty().wait(tiles_ % 2 ^ 1); }

  // Eight elements, or zeros; `from` is readable in any case.
  __device__ static void bring(uint32_t to, const T* from, bool used) { copy_async(to, from, used); }
  template <class Source>
  __device__ static void bring(uint32_t to, const Source* from, bool used) {
    const Eight x = used ? widen(from) : Eight{};
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(pack<T>(x.at[0], x.at[1])),
                 "r"(pack<T>(x.at[2], x.at[3])), "r"(pack<T>(x.at[4], x.at[5])), "r"(pack<T>(x.at[6], x.at[7]))
                 : "memory");
  }
  __device__ static void finish() {
    commit_copies();
    wait_copies<0>();
    if (!Config::kQueriesInRegisters) publish_to_tensor_cores();
  }

  __device__ void note(const TileNote& n) {
    if (thread_ == 0) {
      const uint32_t to = space_.note(tiles_);
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(n.head), "r"(n.row), "r"(n.position),
                   "r"(n.rows)
                   : "memory");
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + 16), "r"(n.length), "r"(n.first_position),
                   "r"(n.key_tiles), "r"(n.pieces)
                   : "memory");
    }
    space_.queries_full().arrive();
    ++tiles_;
  }

  const Space& space_;
  int thread_, tiles_ = 0;
};

template <class T, int kDim>
class QueryFeed : QueryWriter<T, WarpgroupSpace<kDim>> {
  using Base = QueryWriter<T, WarpgroupSpace<kDim>>;
  using Config = WarpgroupConfig<kDim>;
  static constexpr int kPieces = kDim / 8;

 public:
  __device__ QueryFeed(const WarpgroupParams& w, const WarpgroupSpace<kDim>& space) : Base(space), p_(w.prefill) {}

  __device__ void run() {
    for_each_tile<kDim>(p_, [&](const PrefillTile& tile, int first_position, int key_tiles) {
      this->await_room();
      load(tile);
      const DeviceSlice& s = tile.slice;
      this->note({tile.head, s.first_row + tile.first, s.past + tile.first, s.rows - tile.first, s.past + s.rows,
                  first_position, key_tiles, 0});
    });
    this->await_room();
    this->note({});
  }

 private:
  __device__ void load(const PrefillTile& tile) {
    with_device_type(p_.args.q.dtype, [&](auto type) {
      using Source = decltype(type);
      const Source* from = static_cast<const Source*>(p_.args.q.data) +
                           (tile.slice.first_row + tile.first) * p_.args.q.stride +
                           static_cast<int64_t>(tile.head) * kDim;
      const int rows = tile.slice.rows - tile.first;
#pragma unroll 1
      for (int i = this->thread_; i < Config::kRows * kPieces; i += Base::kThreads) {
        const int row = i / kPieces, piece = i % kPieces;
        const bool used = row < rows;
        this->bring(this->space_.query_piece(row, piece), from + (used ? row : 0) * p_.args.q.stride + piece * 8, used);
      }
      return 0;
    });
    this->finish();
  }

  const PrefillParams& p_;
};

}  // namespace millrace
