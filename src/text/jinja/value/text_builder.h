// Builds and searches text within the budget: bounds the size of results, and searches in linear time.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/budget.h"
#include "text/jinja/value/value.h"

namespace millrace::jinja {

class TextBuilder {
 public:
  TextBuilder& append(std::string_view text) {
    reserve(text.size());
    text_.append(text);
    return *this;
  }
  // Appends the text `count` times.
  TextBuilder& append(size_t count, std::string_view text);
  // Appends with the ranges of content: a string, the text of another value, or a piece of a string.
  TextBuilder& append_value(const Value& value);
  TextBuilder& append_piece(const Value& text, std::string_view part);
  TextBuilder& append_content(std::string_view text, bool is_content = true);

  std::string take() { return std::move(text_); }
  Value take_value(bool markup = false) { return Value::text(std::move(text_), std::move(content_), markup); }
  size_t size() const { return text_.size(); }
  std::string_view view() const { return text_; }

 private:
  void reserve(size_t more) {
    Budget::check_text(text_.size() + more);
    Budget::spend(static_cast<int64_t>(more / 64));
  }
  std::string text_;
  ContentRanges content_;
};

// The first position of `wanted` at or behind `from`, or npos.
size_t find_text(std::string_view text, std::string_view wanted, size_t from = 0);
// The last position of `wanted`, or npos.
size_t find_last_text(std::string_view text, std::string_view wanted);
// Both strings.
Value replace_text(const Value& text, std::string_view from, const Value& to, int64_t at_most);

}  // namespace millrace::jinja
