// Hash maps for tokenizers: open addressing in one array, built once, then read-only.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace millrace {

inline uint64_t mix_bits(uint64_t x) {
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  return x ^ x >> 32;
}

inline uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15u, word = 0;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    std::memcpy(&word, bytes.data(), 8);
    hash = (std::rotl(hash, 23) ^ word) * 0x9FB21C651E98DF25u;
  }
  word = 0;
  if (!bytes.empty())
    std::memcpy(&word, bytes.data(), bytes.size());  // memcpy from the null pointer of an empty view is undefined
  return mix_bits(std::rotl(hash, 23) ^ word);
}

// Maps pairs of symbols to their merges.
class PairMap {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };

  explicit PairMap(size_t expected = 0) : slots_(std::bit_ceil(expected * 2 + 2)), mask_(slots_.size() - 1) {}

  void insert(int32_t left, int32_t right, Merge merge) {  // at most `expected` times
    Slot& slot = slots_[find_slot(key_of(left, right))];
    slot = {key_of(left, right), merge};
  }
  const Merge* find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[find_slot(key_of(left, right))];
    return slot.key == kFree ? nullptr : &slot.merge;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};  // not a valid pair: ids are not negative
  struct Slot {
    uint64_t key = kFree;
    Merge merge{};
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t find_slot(uint64_t key) const {
    size_t i = mix_bits(key) & mask_;
    while (slots_[i].key != key && slots_[i].key != kFree) i = (i + 1) & mask_;
    return i;
  }

  std::vector<Slot> slots_;
  size_t mask_;
};

}  // namespace millrace
