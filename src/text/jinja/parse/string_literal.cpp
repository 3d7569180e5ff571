#include "text/jinja/parse/string_literal.h"

#include <cstdlib>

#include "text/jinja/template_error.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

class Unescaper {
 public:
  explicit Unescaper(std::string_view body) : body_(body) {}

  std::string run() {
    while (at_ < body_.size()) {
      if (body_[at_] != '\\') {
        out_ += body_[at_++];
        continue;
      }
      ++at_;
      escape();
    }
    return std::move(out_);
  }

 private:
  void escape() {
    if (at_ == body_.size()) fail_template("\\ at end of string");
    const char c = body_[at_];
    if (static_cast<unsigned char>(c) >= 0x80) return escaped_non_ascii();
    ++at_;
    static constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t known = kNames.find(c); known != std::string_view::npos) {
      out_ += kValues[known];
    } else if (c == '\n') {
      // A backslash in front of a newline joins two lines.
    } else if (c >= '0' && c <= '7') {
      --at_;
      code_point(read_digits(3, 8, false));
    } else if (c == 'x') {
      code_point(read_digits(2, 16, true));
    } else if (c == 'u') {
      code_point(read_digits(4, 16, true));
    } else if (c == 'U') {
      code_point(read_digits(8, 16, true));
    } else if (c == 'N') {
      fail_template("characters by name (\\N{{...}}) are not supported");
    } else {
      out_ += '\\';
      out_ += c;
    }
  }

  // Jinja first replaces non-ASCII characters with escapes, so the backslash escapes the backslash of that escape.
  void escaped_non_ascii() {
    const auto c = static_cast<uint32_t>(next_code_point(body_, at_));
    out_ += c < 0x100     ? fmt::format("\\x{:02x}", c)
            : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                          : fmt::format("\\U{:08x}", c);
  }

  uint32_t read_digits(size_t count, int base, bool all_needed) {
    uint32_t value = 0;
    size_t read = 0;
    for (; read < count && at_ < body_.size() && digit_value(body_[at_]) < base; ++read) {
      value = value * static_cast<uint32_t>(base) + static_cast<uint32_t>(digit_value(body_[at_++]));
    }
    if (all_needed && read < count) fail_template("truncated escape in a string");
    return value;
  }

  void code_point(uint32_t value) {
    if (value > 0x10ffff) fail_template("illegal Unicode character in a string");
    if (value >= 0xd800 && value < 0xe000) fail_template("a lone surrogate in a string cannot be written as UTF-8");
    append_code_point(out_, value);
  }

  const std::string_view body_;
  size_t at_ = 0;
  std::string out_;
};

// Removes single underscores between digits. Empty if an underscore is elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || digit_value(text[i - 1]) > 35 || digit_value(text[i + 1]) > 35) {
      return std::nullopt;
    }
  }
  return out;
}

bool starts_with_prefix(std::string_view text, char marker) {
  return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == marker;
}

bool is_word(std::string_view text, std::string_view word) { return to_lower(text) == word; }

}  // namespace

std::string normalize_newlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string unescape_string(std::string_view body) { return Unescaper(body).run(); }

std::optional<Integer> parse_integer(std::string_view digits, int base) {
  if (digits.empty()) return std::nullopt;
  Integer value = 0;
  for (char c : digits) {
    if (digit_value(c) >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Integer(base), &value) ||
        __builtin_add_overflow(value, Integer(digit_value(c)), &value)) {
      return std::nullopt;
    }
  }
  return value;
}

std::optional<Integer> parse_python_integer(std::string_view text, int base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = strip(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  for (const auto& [marker, marked_base] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if ((base == 0 || base == marked_base) && starts_with_prefix(text, marker)) {
      base = marked_base;
      text.remove_prefix(2);
      if (text.starts_with('_')) text.remove_prefix(1);
      break;
    }
  }
  if (base == 0) {
    base = 10;
    // Base 0 rejects leading zeros, which marked octal numbers in Python 2.
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;
  }
  const std::optional<std::string> digits = without_underscores(text);
  const std::optional<Integer> value = digits ? parse_integer(*digits, base) : std::nullopt;
  return value && negative ? std::optional(-*value) : value;
}

std::optional<double> parse_python_real(std::string_view text) {
  const std::optional<std::string> cleaned = without_underscores(strip(text));
  if (!cleaned || cleaned->empty()) return std::nullopt;
  std::string_view unsigned_text = *cleaned;
  if (unsigned_text[0] == '+' || unsigned_text[0] == '-') unsigned_text.remove_prefix(1);
  const bool named =
      is_word(unsigned_text, "inf") || is_word(unsigned_text, "infinity") || is_word(unsigned_text, "nan");
  // strtod accepts more than Python, such as hexadecimal digits.
  if (!named && unsigned_text.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(cleaned->c_str(), &end);
  if (end != cleaned->c_str() + cleaned->size()) return std::nullopt;
  return value;
}

}  // namespace millrace::jinja
