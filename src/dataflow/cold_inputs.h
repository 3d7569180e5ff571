// Random weights, keys and values for timing kernels. There are enough copies that each call reads from memory, not
// from a cache, as in a step where every layer reads its own weights. The weights of a small model stay in the caches
// from step to step: its copies are no larger together than the model (`model_bytes`).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hardware/device.h"
#include "kernels/attention/attention.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "tensor/arena.h"

namespace millrace {

// Bytes to read before older data has left the caches.
size_t cold_bytes(const Hardware& hardware);
// Copies of a matrix that calls read in turn.
size_t copies_to_read(size_t matrix_bytes, size_t model_bytes, const Hardware& hardware);

class ColdWeights {
 public:
  ColdWeights(DType format, int64_t n, int64_t k, const LinearLayout& layout, Device& device, ThreadPool& pool,
              size_t model_bytes = SIZE_MAX);
  const LinearWeights* next() { return &copies_[turn_++ % copies_.size()]; }
  size_t bytes() const { return bytes_; }  // of one copy
  size_t copies() const { return copies_.size(); }

 private:
  size_t bytes_;
  Arena arena_;
  std::vector<LinearWeights> copies_;
  size_t turn_ = 0;
};

// The matrices of a grouped linear layer.
class ColdExperts {
 public:
  ColdExperts(const GroupedLinearProblem& problem, const LinearLayout& layout, Device& device, ThreadPool& pool,
              size_t model_bytes = SIZE_MAX);
  const GroupedWeights* next() { return &copies_[turn_++ % copies_.size()]; }

 private:
  size_t bytes_, stride_;
  Arena arena_;
  std::vector<const std::byte*> each_;  // of all copies
  std::vector<GroupedWeights> copies_;
  size_t turn_ = 0;
};

// Random routings. The g-th group is chosen with chances proportional to (g + 1)^-skew: equal ones if skew is 0.
class RandomRoutings {
 public:
  RandomRoutings(const GroupedLinearProblem& problem, Device& device, double skew = 0);
  Routing next() { return all_[turn_++ % all_.size()]; }

 private:
  Arena arena_;
  std::vector<Routing> all_;
  size_t turn_ = 0;
};

// KV pages of sequences of equal length. Each next() uses other pages.
class ColdKeys {
 public:
  ColdKeys(const AttentionProblem& problem, Device& device);
  KvLayer layer() const { return layer_; }
  struct Turn {
    std::span<const SequenceSlice> slices;
    SliceTables tables;  // GPU only
  };
  Turn next();

 private:
  AttentionProblem problem_;
  int64_t pages_per_sequence_, pages_;
  Arena arena_;
  KvLayer layer_;
  std::vector<int32_t> numbers_;  // page numbers, listed twice: any window of them is a block table
  std::vector<SequenceSlice> slices_;
  std::unique_ptr<Arena> tables_;  // GPU only: the tables of every next()
  std::vector<SliceTables> turns_;
  int64_t turn_ = 0;

  std::byte* random_pages(int dim, Device& device);
  void advance();
  void make_tables(Device& device);
};

}  // namespace millrace
