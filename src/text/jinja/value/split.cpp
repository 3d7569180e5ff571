#include "text/jinja/value/split.h"

#include <algorithm>
#include <unordered_set>

#include "text/jinja/budget.h"
#include "text/jinja/value/text_builder.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

class Pieces {
 public:
  void add(std::string_view piece) {
    claim_.grow(sizeof(piece));
    pieces_.push_back(piece);
  }
  std::vector<std::string_view> take() { return std::move(pieces_); }
  std::vector<std::string_view> take_reversed() {
    std::reverse(pieces_.begin(), pieces_.end());
    return take();
  }

 private:
  std::vector<std::string_view> pieces_;
  MemoryClaim claim_;
};

}  // namespace

std::vector<std::string_view> split_text(std::string_view text, std::string_view separator, int64_t limit) {
  Pieces pieces;
  size_t start = 0;
  for (; limit != 0; --limit) {
    const size_t found = find_text(text, separator, start);
    if (found == std::string_view::npos) break;
    pieces.add(text.substr(start, found - start));
    start = found + separator.size();
  }
  pieces.add(text.substr(start));
  return pieces.take();
}

std::vector<std::string_view> split_text_from_right(std::string_view text, std::string_view separator, int64_t limit) {
  if (limit < 0) return split_text(text, separator, limit);
  // Searches the reversed text: with overlapping separators Python matches from the right.
  const std::string backwards(text.rbegin(), text.rend());
  const std::string wanted(separator.rbegin(), separator.rend());
  Pieces pieces;
  size_t end = text.size();
  for (; limit != 0; --limit) {
    const size_t found = find_text(backwards, wanted, text.size() - end);
    if (found == std::string_view::npos) break;
    const size_t start = text.size() - found;
    pieces.add(text.substr(start, end - start));
    end = start - separator.size();
  }
  pieces.add(text.substr(0, end));
  return pieces.take_reversed();
}

std::vector<std::string_view> split_spaces(std::string_view text, int64_t limit) {
  Pieces pieces;
  Budget::spend(static_cast<int64_t>(text.size() / 16));
  text = strip_left(text);
  for (; !text.empty(); --limit) {
    if (limit == 0) {
      pieces.add(strip_right(text));
      break;
    }
    size_t at = 0, end = 0;
    while (at < text.size() && !is_space(next_code_point(text, at))) end = at;
    pieces.add(text.substr(0, end));
    text = strip_left(text.substr(end));
  }
  return pieces.take();
}

std::vector<std::string_view> split_spaces_from_right(std::string_view text, int64_t limit) {
  if (limit < 0) return split_spaces(text, limit);
  Pieces pieces;
  Budget::spend(static_cast<int64_t>(text.size() / 16));
  text = strip_right(text);
  for (; !text.empty(); --limit) {
    if (limit == 0) {
      pieces.add(strip_left(text));
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      const size_t before = previous_code_point_start(text, start);
      size_t at = before;
      if (is_space(next_code_point(text, at))) break;
      start = before;
    }
    pieces.add(text.substr(start));
    text = strip_right(text.substr(0, start));
  }
  return pieces.take_reversed();
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  Pieces lines;
  Budget::spend(static_cast<int64_t>(text.size() / 16));
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = next_code_point(text, at);
    if (!is_line_break(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.add(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.add(text.substr(start));
  return lines.take();
}

std::string_view strip_characters(std::string_view text, std::string_view characters, bool left, bool right) {
  std::unordered_set<char32_t> set;
  for (size_t at = 0; at < characters.size();) set.insert(next_code_point(characters, at));
  while (left && !text.empty()) {
    size_t at = 0;
    if (!set.count(next_code_point(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    const size_t start = previous_code_point_start(text, text.size());
    size_t at = start;
    if (!set.count(next_code_point(text, at))) break;
    text = text.substr(0, start);
  }
  return text;
}

bool has_case(std::string_view text, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (other(c) || is_title(c)) return false;
    any |= wanted(c);
  }
  return any;
}

}  // namespace millrace::jinja
