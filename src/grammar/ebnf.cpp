#include "grammar/ebnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace millrace {
namespace {

constexpr CharSet::Range kSurrogates{0xD800, 0xDFFF};

std::string class_character(uint32_t code) {
  if (code < 0x80 && (std::isalnum(static_cast<int>(code)) || code == '_' || code == ' ')) {
    return std::string(1, static_cast<char>(code));
  }
  return code <= 0xFFFF ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

}  // namespace

void CharSet::add(uint32_t first, uint32_t last) {
  if (first > last) return;
  // Those that it touches become one with it.
  const auto begin = std::lower_bound(ranges_.begin(), ranges_.end(), first,
                                      [](const Range& range, uint32_t code) { return range.second + 1 < code; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->second);
  }
  ranges_.insert(ranges_.erase(begin, end), Range(first, last));
}

CharSet CharSet::inverse() const {
  CharSet all = *this;
  all.add(kSurrogates.first, kSurrogates.second);
  CharSet result;  // in order and apart, as they come: nothing to merge
  uint32_t next = 0;
  for (const Range& range : all.ranges_) {
    if (range.first > next) result.ranges_.emplace_back(next, range.first - 1);
    next = range.second + 1;
  }
  if (next <= kLast) result.ranges_.emplace_back(next, kLast);
  return result;
}

CharSet CharSet::without(const CharSet& other) const {
  CharSet outside = inverse();
  outside.add(other);
  return outside.inverse();
}

bool CharSet::contains(uint32_t code) const {
  const auto found = std::lower_bound(ranges_.begin(), ranges_.end(), code,
                                      [](const Range& range, uint32_t one) { return range.second < one; });
  return found != ranges_.end() && found->first <= code;
}

std::string ebnf_literal(std::string_view text) {
  std::string literal = "\"";
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    if (byte == '"' || byte == '\\') {
      literal += '\\';
      literal += byte;
    } else if (code < 0x20 || code == 0x7F) {
      literal += fmt::format("\\u{:04x}", code);
    } else {
      literal += byte;
    }
  }
  return literal + "\"";
}

std::string ebnf_class(const CharSet& characters) {
  std::string text = "[";
  for (const auto& [first, last] : characters.ranges()) {
    text += class_character(first);
    if (last > first) text += "-" + class_character(last);
  }
  return text + "]";
}

std::vector<uint32_t> code_points(std::string_view text) {
  std::vector<uint32_t> codes;
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const size_t length = lead < 0x80 ? 1 : lead >= 0xF0 && lead < 0xF8 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
    if (length == 0 || lead >= 0xF8 || at + length > text.size())
      fail(ErrorKind::Usage, "the grammar is not valid UTF-8");
    uint32_t code = length == 1 ? lead : lead & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; ++i) {
      const auto next = static_cast<unsigned char>(text[at + i]);
      if ((next & 0xC0) != 0x80) fail(ErrorKind::Usage, "the grammar is not valid UTF-8");
      code = code << 6 | (next & 0x3Fu);
    }
    const bool surrogate = code >= kSurrogates.first && code <= kSurrogates.second;
    if (surrogate || code > CharSet::kLast) fail(ErrorKind::Usage, "the grammar is not valid UTF-8");
    codes.push_back(code);
    at += length;
  }
  return codes;
}

std::string utf8(uint32_t code) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0 | code >> 6), byte(0x80 | (code & 0x3F))};
  if (code < 0x10000) return {byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
  return {byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F)), byte(0x80 | (code >> 6 & 0x3F)),
          byte(0x80 | (code & 0x3F))};
}

void Ebnf::spend(size_t bytes) {
  spent_ += bytes;
  if (spent_ > kMostBytes) {
    fail(ErrorKind::Usage, "the grammar is too large: it grows beyond {} KiB of rules", kMostBytes >> 10);
  }
}

std::string Ebnf::add(std::string_view body) {
  std::string name = reserve();
  define(name, body);
  return name;
}

void Ebnf::define(const std::string& name, std::string_view body) {
  spend(name.size() + body.size() + 8);
  rules_ += name;
  rules_ += " ::= ";
  rules_ += body;
  rules_ += '\n';
}

std::string Ebnf::text(std::string_view root) && {
  rules_ += "root ::= ";
  rules_ += root;
  rules_ += '\n';
  return std::move(rules_);
}

std::string ebnf_repeat(std::string_view body, int64_t least, int64_t most) {
  if (most == 0) return "\"\"";
  if (least == 1 && most == 1) return std::string(body);
  const std::string limit = most < 0 ? "" : std::to_string(most);
  if (least == 0 && most < 0) return fmt::format("({})*", body);
  return fmt::format("({}){{{},{}}}", body, least, limit);
}

}  // namespace millrace
