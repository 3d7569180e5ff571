// The border of the heaviest of many numbers, without sorting them: a radix selection over the bits of floats finds it
// in a few linear passes, whatever the numbers are.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace millrace {

// Bits that compare as unsigned integers like the floats compare as numbers.
inline uint32_t ordered_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 becomes 0, which it equals
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The smallest key that is still taken when items are taken from the largest key down until their sizes reach a target,
// and how much of the target is left for the items of this very key.
struct Border {
  uint32_t key = 0;
  double left = 0;
};

struct BorderItem {
  uint32_t key;
  double size;
};

// Of few items: they are put in order. Not inline: see kth_largest() in top_k.cpp.
inline constexpr size_t kFewItems = 128;
Border find_border_of_few(std::span<BorderItem> items, double target);

// Three digits of the key, from the highest: in each the border's digit is found from sums. Only items for which
// takes_part(i) holds are looked at.
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
  uint32_t known = 0;  // the bits of border.key that are found
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
    if (!reached) border.left = std::numeric_limits<double>::infinity();  // rounding: all that is here is taken
    border.key |= found << shift;
    known |= (kDigits - 1) << shift;
  }
  return border;
}

// Whether an item is on the kept side; items are to be asked about in the order of their indices.
inline bool take(Border& border, uint32_t bits, double size) {
  if (bits != border.key) return bits > border.key;
  const bool taken = border.left > 0;
  border.left -= size;
  return taken;
}

}  // namespace millrace
