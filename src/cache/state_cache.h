// The state of all sequences between steps: pages of cached rows, and slots of recurrent state. All of it is allocated
// once, as the memory plan says.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "cache/block_pool.h"
#include "cache/block_table.h"
#include "cache/slot_pool.h"
#include "cache/state_layout.h"
#include "kernels/attention/attention.h"
#include "tensor/arena.h"

namespace millrace {

struct StateOptions {
  DType dtype = DType::F16;  // of paged rows
  int block_size = 64;       // tokens of a page
  int32_t tokens = 0;        // capacity over all sequences
  int32_t slots = 0;         // of running sequences and of snapshots; the layout may have no slots
};

// One slot state of all sequences, as kernels read it: the record of slot s begins at data + s * stride.
struct SlotView {
  DType dtype = DType::F32;
  int64_t elements = 0;
  std::byte* data = nullptr;
  size_t stride = 0;  // bytes

  std::byte* at(int32_t slot) const { return data + static_cast<size_t>(slot) * stride; }
};

class StateCache {
 public:
  StateCache(StateLayout layout, const StateOptions& options, Memory& memory = host_memory());

  int paged_states() const { return static_cast<int>(paged_.size()); }
  KvLayer paged(int i) const { return paged_[static_cast<size_t>(i)]; }
  BlockPool& blocks() { return blocks_; }
  BlockTable new_table(int32_t longest) { return {blocks_, options_.block_size, longest}; }
  void copy_page(int32_t from, int32_t to);  // of all paged states
  // A cache with as many pages of its own, which belong to the same sequences: copy_page() copies there, too. Null:
  // none.
  void mirror_in(StateCache* other) { mirror_ = other; }

  bool has_slots() const { return !layout_.slots().empty(); }
  SlotView slot(int i) const;
  SlotPool& slots() { return slots_; }
  Slot new_slot();                           // cleared; none where the model has no slot states or no slot is free
  void copy_slot(int32_t from, int32_t to);  // all slot states: takes or restores a snapshot
  void clear_slot(int32_t slot);             // the state of a sequence before its first token

  void populate(ThreadPool& pool);  // in host memory: takes all of it from the system before its first use
  const StateOptions& options() const { return options_; }
  int32_t capacity() const { return blocks_.size() * options_.block_size; }
  size_t bytes() const { return arena_.capacity(); }

 private:
  StateLayout layout_;
  StateOptions options_;
  BlockPool blocks_;
  SlotPool slots_;
  Memory& memory_;
  StateCache* mirror_ = nullptr;
  Arena arena_;
  std::vector<KvLayer> paged_;
  size_t layer_bytes_ = 0;  // distance of the paged states, if all have one shape; else 0
  // [slot][state]: the states of a sequence lie together, so that one copy takes a snapshot.
  std::byte* records_ = nullptr;
};

}  // namespace millrace
