// The state that a model keeps between steps, declared once by its constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace millrace {

// One row per token and KV head, kept in pages.
struct PagedShape {
  int kv_heads = 0;
  int key_dim = 0;      // elements of a key row
  int value_dim = 0;    // elements of a value row
  bool latent = false;  // values are the first value_dim elements of the key row (MLA) and are not stored
  friend bool operator==(const PagedShape&, const PagedShape&) = default;
};

// One record of fixed size per sequence: recurrent or convolution state. It begins as zeros.
struct SlotShape {
  DType dtype = DType::F32;
  int64_t elements = 0;
};

class StateLayout {
 public:
  int paged(const PagedShape& shape);  // returns the index among the paged states
  int slot(const SlotShape& shape);    // returns the index among the slot states
  std::span<const PagedShape> paged() const { return paged_; }
  std::span<const SlotShape> slots() const { return slots_; }

  size_t bytes_per_token(DType dtype) const;  // of all paged states
  size_t bytes_per_slot() const;              // of all slot states of one sequence
  // Where slot state i begins inside a sequence's record.
  size_t slot_offset(int i) const;

 private:
  std::vector<PagedShape> paged_;
  std::vector<SlotShape> slots_;
};

}  // namespace millrace
