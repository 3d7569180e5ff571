// Decode attention with persistent blocks: as many as run at once, with all pairs split evenly among them (even_cut.h).
// For batches whose pairs fill the multiprocessors unevenly.
//
// A block starts with its last pair and leaves the sums of that pair in memory for the block that finishes the pair. It
// ends with its first pair, whose other parts are in memory by then. So a block does not wait if two blocks share a
// pair, and blocks wait only for blocks with lower indices, which have started.
#pragma once

#include "kernels/attention/cuda/decode/even_end.cuh"
#include "kernels/attention/cuda/decode/stream.cuh"

namespace millrace {

// A block's range of the line, segment by segment from its end.
class EvenWalk {
 public:
  __device__ explicit EvenWalk(const DecodeParams& p)
      : p_(&p),
        first_(p.cut.block_begin(blockIdx.x)),
        end_(p.cut.block_begin(blockIdx.x + 1)),
        pair_(p.cut.pair_at(end_ - 1)) {
    enter();
  }
  __device__ bool done() const { return end_ <= first_; }
  __device__ const Segment& segment() const { return segment_; }
  __device__ void next(const Segment&) {
    leave();
    enter();
  }

  // Destination of this block's sums of the pair, and the blocks it waits for. Parts may be empty.
  __device__ PairShare share() const {
    PairShare share;
    if (segment_.end < segment_.pair_begin + segment_.pair_units) {
      share.to = p_->cut.last_block(pair_, segment_.pair_units);
    } else if (first_ > p_->cut.pair_begin(pair_)) {
      share.first = p_->cut.first_block(pair_);
      share.count = static_cast<int>(blockIdx.x) - share.first;
    }
    return share;
  }

 private:
  __device__ void leave() {
    end_ = p_->cut.pair_begin(pair_);
    --pair_;
  }
  // Skips sequences without such a tile, and points beyond the units of a pair.
  __device__ void enter() {
    while (!done()) {
      find();
      if (segment_.rows > 0 && segment_.begin < segment_.pair_begin + segment_.pair_units) return;
      leave();
    }
  }
  __device__ void find() {
    const DecodeParams& p = *p_;
    Segment& s = segment_;
    s.sequence = static_cast<int>(p.by_pairs_per_sequence.of(pair_));
    s.slice = p.args.slices[s.sequence];
    const int place = static_cast<int>(pair_) - s.sequence * p.pairs_per_sequence;
    s.kv_head = p.most_tiles == 1 ? place : place / p.most_tiles;
    s.first_row_of_tile = (place - s.kv_head * p.most_tiles) * kTileRows;
    s.rows = min(kTileRows, s.slice.rows * p.group - s.first_row_of_tile);
    const SequenceWork work = sequence_work(s.slice.rows, s.slice.past, p.args.window, p.kv_heads, p.group);
    s.pair_begin = work.first_unit;
    s.pair_units = work.units;
    const unsigned from = max(first_, p.cut.pair_begin(pair_));
    s.begin = work.first_unit + p.cut.units_before(pair_, work.units, from);
    s.end = work.first_unit + p.cut.units_before(pair_, work.units, end_);
  }

  const DecodeParams* p_;
  unsigned first_, end_, pair_;
  Segment segment_;
};

// Each iteration finishes the previous segment, whose sums it holds, and starts the next one, whose rows are requested
// first.
template <class T, class Config, Softmax kSoftmax>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    decode_even(const __grid_constant__ DecodeParams p) {
  using Part = RowPart<T, Config>;
  extern __shared__ __align__(128) unsigned char shared[];
  p.stamps.start();
  const DecodeSpace<Config> space(p, shared);
  const int thread = static_cast<int>(threadIdx.x);
  if (!p.args.early || !Config::kLetsNextStartLate) allow_dependents();
  if (!p.args.early) wait_for_predecessors();
  EvenWalk walk(p);
  UnitLoader<T, Config, EvenWalk> loader(p, walk, space.stages);
  WarpStream<T, Config, EvenWalk> stream{p, loader, space.stages, 0};
  const int issued = stream.start_early(p.args.early);
  if (p.args.early && Config::kLetsNextStartLate) allow_dependents();
  EvenEnd<Config> end(p, space.merge);
  RowSums<Config::kDim> sums;
  Segment segment;
  PairShare share;
  for (bool first = true;; first = false) {
    const Segment next = walk.segment();
    const Part part(p, next, thread);
    if (first) stream.start_after(issued);
    typename Part::Normed rows;
    const int parts = walk.done() ? 0 : parts_of<T, Config>(p, next);
    if (thread < parts) rows = part.load_normed(p);
    if (!first) end.finish(sums, segment, share);
    if (walk.done()) break;
    segment = next;
    share = walk.share();
    WarpAttention<T, Config> attention(p, segment);
    if (thread < parts) part.place(p, rows, space.queries);
    share_rows<T, Config>(p, segment, thread + Config::kThreads, space.queries);
    FreshRow<T, Config> fresh(p, segment);
    take_rows(p, segment, space, attention, fresh);
    run_segment<kSoftmax>(stream, attention, fresh, walk, segment, sums);
    p.stamps.mark_first(kMultiplied);
    walk.next(segment);
  }
  p.stamps.mark_first(kStored);
}

}  // namespace millrace
