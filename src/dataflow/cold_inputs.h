// Weights, keys and values to time kernels with: random, and so many copies in turn that each comes from memory, as it
// does in a step where every layer brings its own.
#pragma once

#include <memory>
#include <vector>

#include "hardware/device.h"
#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"
#include "tensor/arena.h"

namespace millrace {

// Bytes to pass over before the caches have forgotten what came first.
size_t cold_bytes(const Hardware& hardware);

class ColdWeights {
 public:
  ColdWeights(DType format, int64_t n, int64_t k, const LinearLayout& layout, Device& device, ThreadPool& pool);
  const LinearWeights* next() { return &copies_[turn_++ % copies_.size()]; }
  size_t bytes() const { return bytes_; }  // of one copy
  size_t copies() const { return copies_.size(); }

 private:
  size_t bytes_;
  Arena arena_;
  std::vector<LinearWeights> copies_;
  size_t turn_ = 0;
};

// Pages for sequences of equal length; each turn moves on to others.
class ColdKeys {
 public:
  ColdKeys(const AttentionProblem& problem, Device& device);
  KvLayer layer() const { return layer_; }
  struct Turn {
    std::span<const SequenceSlice> slices;
    SliceTables tables;  // on a GPU
  };
  Turn next();

 private:
  AttentionProblem problem_;
  int64_t pages_per_sequence_, pages_;
  Arena arena_;
  KvLayer layer_;
  std::vector<int32_t> numbers_;  // of pages, twice over: any window of them is a block table
  std::vector<SequenceSlice> slices_;
  std::unique_ptr<Arena> tables_;  // on a GPU: those of each turn, made once
  std::vector<SliceTables> turns_;
  int64_t turn_ = 0;

  std::byte* random_pages(int dim, Device& device);
  void advance();
  void make_tables(Device& device);
};

}  // namespace millrace
