// The sequence of pieces of pairs that a block of decode attention processes.
#pragma once

#include "kernels/attention/cuda/decode/params.cuh"

namespace millrace {

// A piece of a pair: the location of its rows and the units that they attend to.
struct Segment {
  int sequence = 0, kv_head = 0, first_row_of_tile = 0;  // the tile's first index into rows * group
  int rows = 0;                                          // used rows of the tile
  int begin = 0, end = 0;                                // absolute units
  int pair_begin = 0, pair_units = 0;                    // on the line
  bool from_start = false, whole = false;  // from_start: begins at the start of its pair; whole: covers its pair
  DeviceSlice slice;
};

// Walks a range of the line, segment by segment.
class Walk {
 public:
  __device__ Walk(const DecodeParams& p, int begin, int end, int sequence, int sequence_begin)
      : p_(&p), point_(begin), end_(end), sequence_(sequence), base_(sequence_begin) {
    enter();
  }
  __device__ bool done() const { return point_ >= end_; }

  __device__ Segment segment() const {
    const int pair = (point_ - base_) / work_.units;
    const int tiles = work_.pairs / p_->kv_heads;
    Segment s;
    s.sequence = sequence_;
    s.slice = slice_;
    s.kv_head = pair / tiles;
    s.first_row_of_tile = pair % tiles * kTileRows;
    s.rows = min(kTileRows, slice_.rows * p_->group - s.first_row_of_tile);
    s.pair_begin = base_ + pair * work_.units;
    s.pair_units = work_.units;
    const int begin = point_ - s.pair_begin, end = min(work_.units, begin + end_ - point_);
    s.begin = work_.first_unit + begin;
    s.end = work_.first_unit + end;
    s.from_start = begin == 0;
    s.whole = begin == 0 && end == work_.units;
    return s;
  }
  __device__ void next(const Segment& s) {
    point_ += s.end - s.begin;
    if (!done() && point_ == base_ + work_.length()) {
      base_ = point_;
      ++sequence_;
      enter();
    }
  }

 private:
  __device__ void enter() {
    while (true) {
      slice_ = p_->args.slices[sequence_];
      work_ = sequence_work(slice_.rows, slice_.past, p_->args.window, p_->kv_heads, p_->group);
      if (work_.length() > 0) return;
      ++sequence_;
    }
  }

  const DecodeParams* p_;
  int point_, end_, sequence_, base_;
  DeviceSlice slice_;
  SequenceWork work_;
};

// The same interface for a single piece of one pair.
class OnePiece {
 public:
  __device__ explicit OnePiece(const Segment& segment) : segment_(segment), done_(segment.begin >= segment.end) {}
  __device__ bool done() const { return done_; }
  __device__ const Segment& segment() const { return segment_; }
  __device__ void next(const Segment&) { done_ = true; }

 private:
  Segment segment_;
  bool done_;
};

// The work of each sequence. A lane keeps that of its own index, so that small batches are read once.
class BatchWork {
 public:
  __device__ explicit BatchWork(const DecodeParams& p) : p_(p), lane_(static_cast<int>(threadIdx.x) % 32) {
    if (lane_ < p.sequences) held_ = load(lane_);
  }
  __device__ SequenceWork of(int i) const { return i == lane_ ? held_ : load(i); }

 private:
  __device__ SequenceWork load(int i) const {
    const DeviceSlice s = p_.args.slices[i];
    return sequence_work(s.rows, s.past, p_.args.window, p_.kv_heads, p_.group);
  }
  const DecodeParams& p_;
  int lane_;
  SequenceWork held_;
};

// Row of the slice and query head (among those that share the KV head) of an index into a tile's rows. Most slices have
// one row, so the slow division is skipped.
struct RowAndHead {
  int row, head;
  __device__ RowAndHead(const DecodeParams& p, const Segment& s, int index) : row(0), head(index) {
    if (s.slice.rows > 1) row = index / p.group, head = index % p.group;
  }
};

// Brings a line to the L2 cache. Only a hint: another kernel may still write there.
__device__ inline void prefetch(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

}  // namespace millrace
