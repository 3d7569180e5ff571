#include "text/jinja/parse/lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "text/jinja/parse/string_literal.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

using Type = Token::Type;

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : normalized_(normalize_newlines(source)), source_(normalized_) {
    if (source_.ends_with('\n')) source_.remove_suffix(1);
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag(at_);
      const std::string_view opening = source_.substr(tag, 2);
      const bool tag_found = tag < source_.size();
      const size_t tag_line_begin = at_;
      const std::string_view text = source_.substr(at_, tag - at_);
      if (!tag_found) {
        add_data(text);
        advance(source_.size());
        break;
      }
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      add_data(trim_before_tag(text, sign, opening == "{{"));
      advance(tag_line_begin + text.size());
      const size_t inside = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
      if (opening == "{#") {
        comment(inside);
      } else if (const std::optional<size_t> raw_begin = opening == "{%" ? match_raw_begin(inside) : std::nullopt) {
        raw(*raw_begin);
      } else {
        tag_tokens(opening == "{%", inside);
      }
    }
    add(Type::End, "");
    return std::move(tokens_);
  }

 private:
  // Advances and counts lines.
  void advance(size_t to) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(at_), source_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  // Moves behind the end of a tag and notes whether a line starts there, which decides about stripping indentation.
  void leave_tag(size_t to) {
    advance(to);
    at_line_start_ = to > 0 && source_[to - 1] == '\n';
  }

  void add(Type type, std::string text, Value value = {}) {
    tokens_.push_back({type, line_, std::move(text), std::move(value)});
  }

  void add_data(std::string_view text) {
    if (!text.empty()) add(Type::Data, std::string(text));
  }

  size_t find_tag(size_t from) const {
    for (size_t at = from; (at = source_.find('{', at)) != std::string_view::npos; ++at) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '%' || next == '{' || next == '#') return at;
    }
    return source_.size();
  }

  std::string_view trim_before_tag(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || is_variable) return text;
    const size_t newline = text.rfind('\n');
    const bool starts_line = newline != std::string_view::npos || at_line_start_;
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    return starts_line && strip_left(text.substr(line_begin)).empty() ? text.substr(0, line_begin) : text;
  }

  size_t skip_spaces(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      if (!is_space(next_code_point(source_, next))) break;
      at = next;
    }
    return at;
  }

  bool starts_with(size_t at, std::string_view text) const {
    return at <= source_.size() && source_.substr(at, text.size()) == text;
  }

  // Returns the position behind the end of a block or comment ("%}", "-%}", "+%}") and the white space that it strips.
  std::optional<size_t> match_closing(size_t at, std::string_view closing) const {
    const char sign = at < source_.size() ? source_[at] : '\0';
    if (sign == '+' && starts_with(at + 1, closing)) return at + 3;
    if (sign == '-' && starts_with(at + 1, closing)) return skip_spaces(at + 3);
    if (!starts_with(at, closing)) return std::nullopt;
    return starts_with(at + 2, "\n") ? at + 3 : at + 2;
  }

  void comment(size_t inside) {
    const size_t end = source_.find("#}", inside);
    if (end == std::string_view::npos) {
      if (inside == source_.size()) return leave_tag(inside);  // Jinja accepts an unclosed comment here
      fail_template_at(line_, "Missing end of comment tag");
    }
    const bool has_sign = end > inside && (source_[end - 1] == '-' || source_[end - 1] == '+');
    leave_tag(*match_closing(has_sign ? end - 1 : end, "#}"));
  }

  // Returns the position behind "raw %}" or "raw -%}". The former keeps the following newline.
  std::optional<size_t> match_raw_begin(size_t inside) const {
    size_t at = skip_spaces(inside);
    if (!starts_with(at, "raw")) return std::nullopt;
    at = skip_spaces(at + 3);
    if (starts_with(at, "-%}")) return skip_spaces(at + 3);
    return starts_with(at, "%}") ? std::optional(at + 2) : std::nullopt;
  }

  void raw(size_t begin) {
    leave_tag(begin);
    for (size_t tag = begin; (tag = source_.find("{%", tag)) != std::string_view::npos; tag += 2) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      size_t at = skip_spaces(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (!starts_with(at, "endraw")) continue;
      const std::optional<size_t> end = match_closing(skip_spaces(at + 6), "%}");
      if (!end) continue;
      add_data(trim_before_tag(source_.substr(begin, tag - begin), sign, false));
      return leave_tag(*end);
    }
    if (begin < source_.size()) fail_template_at(line_, "Missing end of raw directive");
  }

  void tag_tokens(bool is_block, size_t inside) {
    add(is_block ? Type::BlockBegin : Type::VariableBegin, "");
    advance(inside);
    brackets_.clear();
    while (at_ < source_.size()) {
      if (brackets_.empty()) {
        if (const std::optional<size_t> end = is_block ? match_closing(at_, "%}") : match_variable_end()) {
          add(is_block ? Type::BlockEnd : Type::VariableEnd, "");
          return leave_tag(*end);
        }
      }
      const size_t next = skip_spaces(at_);
      if (next != at_) {
        advance(next);
      } else {
        token();
      }
    }
  }

  std::optional<size_t> match_variable_end() const {
    if (starts_with(at_, "-}}")) return skip_spaces(at_ + 3);
    return starts_with(at_, "}}") ? std::optional(at_ + 2) : std::nullopt;
  }

  void token() {
    const char c = source_[at_];
    if (is_decimal_digit(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    if (const size_t end = name_end()) {
      const std::string_view name = source_.substr(at_, end - at_);
      if (!is_identifier(name)) fail_template_at(line_, "Invalid character in identifier");
      add(Type::Name, std::string(name));
      return advance(end);
    }
    operation();
  }

  // The end of the name at the current position; 0 if there is none.
  size_t name_end() const {
    size_t end = at_;
    while (end < source_.size()) {
      size_t next = end;
      const char32_t c = next_code_point(source_, next);
      if (c != '_' && !is_alnum(c)) break;
      end = next;
    }
    return end == at_ ? 0 : end;
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_template_at(line_, "a string is not closed");
    try {
      add(Type::String, unescape_string(source_.substr(at_ + 1, end - at_ - 1)));
    } catch (const TemplateError& error) {
      fail_template_at(line_, "{}", error.what());
    }
    advance(end + 1);
  }

  void operation() {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](std::string_view symbol) { return starts_with(at_, symbol); });
    if (found == std::end(kOperators)) {
      size_t end = at_;
      next_code_point(source_, end);
      fail_template_at(line_, "unexpected char '{}'", source_.substr(at_, end - at_));
    }
    balance((*found)[0]);
    add(Type::Operator, std::string(*found));
    advance(at_ + found->size());
  }

  void balance(char c) {
    if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) fail_template_at(line_, "unexpected '{}'", c);
    const char expected = brackets_.back();
    if (expected != c) fail_template_at(line_, "unexpected '{}', expected '{}'", c, expected);
    brackets_.pop_back();
  }

  // The end of a run of digits with single underscores between them.
  size_t digits_end(size_t at, bool (*is_wanted)(char)) const {
    while (at < source_.size() &&
           (is_wanted(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() && is_wanted(source_[at + 1]) &&
                                       at > 0 && is_wanted(source_[at - 1])))) {
      ++at;
    }
    return at;
  }

  void number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot) {
      if (const size_t end = real_end()) return real(end);
    }
    integer();
  }

  // The end of a number with a fraction or an exponent; 0 if there is none.
  size_t real_end() const {
    const size_t whole = digits_end(at_, is_decimal_digit);
    size_t end = whole;
    if (end + 1 < source_.size() && source_[end] == '.' && is_decimal_digit(source_[end + 1])) {
      end = digits_end(end + 1, is_decimal_digit);
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      size_t digits = end + 1;
      if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
      const size_t exponent = digits_end(digits, is_decimal_digit);
      if (exponent > digits) return exponent;
    }
    return end > whole ? end : 0;
  }

  std::string without_underscores(size_t begin, size_t end) const {
    std::string text(source_.substr(begin, end - begin));
    std::erase(text, '_');
    return text;
  }

  void real(size_t end) {
    const std::string text = without_underscores(at_, end);
    add(Type::Float, text, Value::real(std::strtod(text.c_str(), nullptr)));
    advance(end);
  }

  void integer() {
    int base = 10;
    size_t begin = at_, end;
    const char marker = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    const auto is_hex = [](char c) { return is_decimal_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); };
    const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
    const auto is_binary = [](char c) { return c == '0' || c == '1'; };
    const auto prefixed_end = [&](bool (*is_wanted)(char)) {
      const size_t first = at_ + 2 + (starts_with(at_ + 2, "_") ? 1 : 0);
      return first < source_.size() && is_wanted(source_[first]) ? digits_end(first, is_wanted) : 0;
    };
    end = 0;
    if (source_[at_] == '0' && marker == 'x') base = 16, end = prefixed_end(is_hex);
    if (source_[at_] == '0' && marker == 'o') base = 8, end = prefixed_end(is_octal);
    if (source_[at_] == '0' && marker == 'b') base = 2, end = prefixed_end(is_binary);
    if (end > 0) {
      begin += 2;
    } else {
      base = 10;
      // As in Python, only zeros may follow a leading zero.
      end = digits_end(at_, source_[at_] == '0' ? [](char c) { return c == '0'; } : is_decimal_digit);
    }
    const std::optional<Integer> value = parse_integer(without_underscores(begin, end), base);
    if (!value) fail_template_at(line_, "a number of more than 127 bits is not supported");
    add(Type::Integer, std::string(source_.substr(at_, end - at_)), Value::integer(*value));
    advance(end);
  }

  const std::string normalized_;
  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::string brackets_;  // pending closing brackets
  std::vector<Token> tokens_;
};

}  // namespace

std::string Token::describe() const {
  switch (type) {
    case Type::Data:
      return "template text";
    case Type::BlockBegin:
      return "begin of statement block";
    case Type::BlockEnd:
      return "end of statement block";
    case Type::VariableBegin:
      return "begin of print statement";
    case Type::VariableEnd:
      return "end of print statement";
    case Type::String:
      return "string";
    case Type::End:
      return "end of template";
    default:
      return text;
  }
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace millrace::jinja
