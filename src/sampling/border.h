// Finds the threshold of the largest values without sorting: a radix selection over the bits of floats, in three linear
// passes for any input.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace millrace {

// Maps floats to unsigned integers with the same order.
inline uint32_t ordered_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 becomes 0: they must compare equal
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Items are taken from the largest key down until their sizes reach a target. `key` is the smallest key taken; `left`
// is the part of the target that remains for the items with exactly this key.
struct Border {
  uint32_t key = 0;
  double left = 0;
};

struct BorderItem {
  uint32_t key;
  double size;
};

// Sorts: faster for few items. Not inline: see kth_largest() in top_k.cpp.
inline constexpr size_t kFewItems = 128;
Border find_border_of_few(std::span<BorderItem> items, double target);

// Splits the key into three digits of 11 bits. Each pass sums the sizes by digit, highest digit first, and
// fixes one digit of the border. Skips items for which takes_part(i) is false.
template <class Key, class Size, class TakesPart>
Border find_border(size_t count, double target, Key key, Size size, TakesPart takes_part) {
  if (count <= kFewItems) {
    std::array<BorderItem, kFewItems> items;
    size_t found = 0;
    for (size_t i = 0; i < count; ++i) {
      if (takes_part(i)) items[found++] = {key(i), size(i)};
    }
    return find_border_of_few(std::span(items).first(found), target);
  }
  constexpr uint32_t kDigits = 2048;
  Border border{0, target};
  uint32_t known = 0;  // mask of the bits of border.key that are fixed
  for (const int shift : {21, 10, 0}) {
    std::array<double, kDigits> sums{};
    for (size_t i = 0; i < count; ++i) {
      if (!takes_part(i)) continue;
      const uint32_t bits = key(i);
      if ((bits & known) == border.key) sums[(bits >> shift) % kDigits] += size(i);
    }
    uint32_t found = 0;
    bool reached = false;
    for (uint32_t digit = kDigits; digit-- > 0 && !reached;) {
      if (sums[digit] == 0) continue;
      found = digit;
      reached = sums[digit] >= border.left;
      if (!reached) border.left -= sums[digit];
    }
    if (!reached)
      border.left =
          std::numeric_limits<double>::infinity();  // rounding: the sizes fall short of the target, so take every item
    border.key |= found << shift;
    known |= (kDigits - 1) << shift;
  }
  return border;
}

// True if the item is kept. Call it in the order of the indices: among equal keys the lowest index wins.
inline bool take(Border& border, uint32_t bits, double size) {
  if (bits != border.key) return bits > border.key;
  const bool taken = border.left > 0;
  border.left -= size;
  return taken;
}

}  // namespace millrace
