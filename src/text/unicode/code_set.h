// Sets of characters: as ranges while they are put together, as a bitmap once they are asked about.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "text/unicode/unicode_data.h"

namespace millrace {

class CodeSet {
 public:
  CodeSet() = default;
  explicit CodeSet(std::span<const CodeRange> ranges) { add(ranges); }
  CodeSet(std::initializer_list<CodeRange> ranges) { add(std::span(ranges.begin(), ranges.size())); }

  void add(std::span<const CodeRange> ranges);
  void add(uint32_t first, uint32_t last);
  void add(const CodeSet& other) { add(other.ranges()); }
  void fold_case();  // adds every character that differs from a member in case only

  CodeSet complement() const;
  CodeSet intersection(const CodeSet& other) const;
  CodeSet toggled(const CodeSet& other) const;  // members of one of them only

  bool contains(uint32_t code) const { return overlaps(code, code); }
  bool overlaps(uint32_t first, uint32_t last) const;
  std::span<const CodeRange> ranges() const { return ranges_; }

 private:
  std::vector<CodeRange> ranges_;  // sorted, disjoint
};

// The same set for fast questions: one bit a character in pages of 256 of which most are shared.
class CodeTable {
 public:
  explicit CodeTable(const CodeSet& set);

  bool contains(char32_t code) const {
    if (code < 128) return ascii_[code >> 6] >> (code & 63) & 1;
    const auto& page = pages_[page_of_[code >> 8]];
    return page[code >> 6 & 3] >> (code & 63) & 1;
  }
  bool contains_ascii(unsigned char byte) const { return ascii_[byte >> 6] >> (byte & 63) & 1; }

 private:
  using Page = std::array<uint64_t, 4>;
  std::array<uint64_t, 2> ascii_;
  std::array<uint16_t, 0x1100> page_of_;
  std::vector<Page> pages_;
};

}  // namespace millrace
