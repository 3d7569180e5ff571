// Builds the text of a grammar: named rules over literals and character classes. What it holds is bounded, so that no
// schema can make a grammar that takes for ever to compile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

// Code points, as sorted ranges that do not touch.
class CharSet {
 public:
  using Range = std::pair<uint32_t, uint32_t>;  // first, last
  static constexpr uint32_t kLast = 0x10FFFF;

  CharSet() = default;
  CharSet(std::initializer_list<Range> ranges) {
    for (const Range& range : ranges) add(range.first, range.second);
  }
  void add(uint32_t first, uint32_t last);
  void add(const CharSet& other) {
    for (const Range& range : other.ranges_) add(range.first, range.second);
  }
  CharSet inverse() const;  // without surrogates, which no text has
  CharSet without(const CharSet& other) const;
  bool contains(uint32_t code) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const CharSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

std::string ebnf_literal(std::string_view text);    // "..." of any UTF-8 text; "" of an empty one
std::string ebnf_class(const CharSet& characters);  // [...]; must not be empty

// The code points of valid UTF-8. Throws Usage where it is not.
std::vector<uint32_t> code_points(std::string_view text);
std::string utf8(uint32_t code);

class Ebnf {
 public:
  static constexpr size_t kMostBytes = 256 << 10;

  // Defines a rule and returns its name. Throws Usage where the grammar grows beyond its bounds.
  std::string add(std::string_view body);
  // A name for a rule that will be defined later: for recursion.
  std::string reserve() { return "r" + std::to_string(next_++); }
  void define(const std::string& name, std::string_view body);
  // Counts work that makes no rule, against the same bound.
  void spend(size_t bytes);

  std::string text(std::string_view root) &&;

 private:
  std::string rules_;
  size_t spent_ = 0;
  uint64_t next_ = 0;
};

// body{least,most}; most < 0: without end.
std::string ebnf_repeat(std::string_view body, int64_t least, int64_t most);

}  // namespace millrace
