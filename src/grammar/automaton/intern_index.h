// Hash index of a pool that stores each distinct value once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace millrace {

class InternIndex {
 public:
  static constexpr int32_t kNone = -1;

  // The index with this hash for which `same` holds, or kNone.
  template <class Same>
  int32_t find(uint64_t hash, Same same) const {
    if (slots_.empty()) return kNone;
    for (size_t i = hash & (slots_.size() - 1); slots_[i].second != kNone; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].first == hash && same(slots_[i].second)) return slots_[i].second;
    }
    return kNone;
  }

  void add(uint64_t hash, int32_t number) {
    if (2 * ++used_ > slots_.size()) grow();
    put(hash, number);
  }

  void clear() {
    slots_.clear();
    used_ = 0;
  }
  size_t memory() const { return slots_.size() * sizeof(slots_[0]); }

 private:
  void put(uint64_t hash, int32_t number) {
    size_t i = hash & (slots_.size() - 1);
    while (slots_[i].second != kNone) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {hash, number};
  }
  void grow() {
    std::vector<std::pair<uint64_t, int32_t>> old = std::move(slots_);
    slots_.assign(old.empty() ? 256 : 2 * old.size(), {0, kNone});
    for (const auto& [hash, number] : old) {
      if (number != kNone) put(hash, number);
    }
  }

  std::vector<std::pair<uint64_t, int32_t>> slots_;  // size is a power of two, load at most one half
  size_t used_ = 0;
};

}  // namespace millrace
