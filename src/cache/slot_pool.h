// Hands out the slots of the state cache. A slot has one owner at a time: a running sequence, or the prefix tree for a
// snapshot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace millrace {

class SlotPool;

// One slot, given back when its owner drops it.
class Slot {
 public:
  Slot() = default;
  Slot(Slot&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, -1)) {}
  Slot& operator=(Slot&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    other.reset();
    return *this;
  }
  ~Slot() { reset(); }

  void reset();
  int32_t id() const { return id_; }  // -1: none
  explicit operator bool() const { return id_ >= 0; }

 private:
  friend class SlotPool;
  Slot(SlotPool& pool, int32_t id) : pool_(&pool), id_(id) {}

  SlotPool* pool_ = nullptr;
  int32_t id_ = -1;
};

class SlotPool {
 public:
  explicit SlotPool(int32_t slots);
  SlotPool(const SlotPool&) = delete;

  Slot take();  // none when the pool is empty
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t size() const { return size_; }

 private:
  friend class Slot;
  int32_t size_;
  std::vector<int32_t> free_;  // used as a stack: the slot freed last is the warmest
};

}  // namespace millrace
