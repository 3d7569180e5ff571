// Sets of code points: as ranges while they are built, as a bitmap for fast queries.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "text/unicode/unicode_data.h"

namespace millrace {

class CodeSet {
 public:
  static constexpr uint32_t kLast = 0x10FFFF;

  CodeSet() = default;
  explicit CodeSet(std::span<const CodeRange> ranges) { add(ranges); }
  CodeSet(std::initializer_list<CodeRange> ranges) { add(std::span(ranges.begin(), ranges.size())); }

  void add(std::span<const CodeRange> ranges);  // in any order
  void add(uint32_t first, uint32_t last);      // nothing where first > last
  void add(const CodeSet& other) { add(other.ranges()); }
  void fold_case();  // adds every character that differs from a member in case only

  // These leave out surrogates: no valid text has them.
  CodeSet complement() const;
  CodeSet without(const CodeSet& other) const;
  CodeSet intersection(const CodeSet& other) const { return without(other.complement()); }
  CodeSet toggled(const CodeSet& other) const;  // members of exactly one of them

  bool empty() const { return ranges_.empty(); }
  bool contains(uint32_t code) const { return overlaps(code, code); }
  bool overlaps(uint32_t first, uint32_t last) const;
  std::span<const CodeRange> ranges() const { return ranges_; }
  auto operator<=>(const CodeSet&) const = default;

 private:
  std::vector<CodeRange> ranges_;  // sorted; neighbours neither overlap nor touch
};

// A bitmap of the set in pages of 256 characters. Equal pages are stored once.
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
