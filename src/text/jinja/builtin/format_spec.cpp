#include "text/jinja/builtin/format_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/operators.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/object.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/text_builder.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = 0;  // 0: default of the type
  char sign = '-';
  bool alternate = false;
  int64_t width = 0;
  char grouping = 0;
  int64_t precision = -1;
  char type = 0;
};

bool is_align(char32_t c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

class SpecReader {
 public:
  explicit SpecReader(std::string_view text) : text_(text) {}

  Spec read() {
    Spec spec;
    read_alignment(spec);
    if (at_ < text_.size() && (peek() == '+' || peek() == '-' || peek() == ' ')) spec.sign = text_[at_++];
    spec.alternate = take('#');
    if (take('0')) {
      if (!spec.align) spec.align = '=', spec.fill = "0";
    }
    spec.width = read_number(0);
    if (peek() == ',' || peek() == '_') spec.grouping = text_[at_++];
    if (take('.')) {
      spec.precision = read_number(-1);
      if (spec.precision < 0) fail_template("Format specifier missing precision");
    }
    if (at_ < text_.size()) spec.type = text_[at_++];
    if (at_ < text_.size()) fail_template("Invalid format specifier '{}'", text_);
    return spec;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  void read_alignment(Spec& spec) {
    if (text_.empty()) return;
    size_t after_fill = 0;
    next_code_point(text_, after_fill);
    if (after_fill < text_.size() && is_align(static_cast<unsigned char>(text_[after_fill]))) {
      spec.fill = text_.substr(0, after_fill);
      spec.align = text_[after_fill];
      at_ = after_fill + 1;
    } else if (is_align(static_cast<unsigned char>(text_[0]))) {
      spec.align = text_[at_++];
    }
  }

  int64_t read_number(int64_t otherwise) {
    if (peek() < '0' || peek() > '9') return otherwise;
    Integer value = 0;
    while (peek() >= '0' && peek() <= '9') value = checked_format_width(value * 10 + (text_[at_++] - '0'));
    return static_cast<int64_t>(value);
  }

  const std::string_view text_;
  size_t at_ = 0;
};

std::string group_digits(std::string_view digits, char separator, size_t size) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out;
}

// Groups and zero-fills the digits only, not `sign` and `tail`.
std::string lay_out_number(const Spec& spec, std::string sign, std::string digits, std::string tail, size_t group) {
  if (spec.grouping) {
    // Python also groups the zeros of a fill.
    const auto used = static_cast<int64_t>(sign.size() + tail.size());
    if (spec.align == '=' && spec.fill == "0") {
      const auto grouped_size = [&](size_t n) { return static_cast<int64_t>(n + (n - 1) / group); };
      size_t count = digits.size();
      while (count > 0 && used + grouped_size(count) < spec.width) ++count;
      digits.insert(0, count - digits.size(), '0');
    }
    digits = group_digits(digits, spec.grouping, group);
  }
  const std::string body = digits + tail;
  if (spec.align == '=') {
    return sign + pad(body, spec.width - static_cast<int64_t>(sign.size()), '>', spec.fill);
  }
  return pad(sign + body, spec.width, spec.align ? spec.align : '>', spec.fill);
}

std::string sign_text(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string format_real_value(double value, const Spec& spec) {
  const char type = spec.type;
  std::string digits;
  const double size = std::fabs(value);
  if (type == 0) {
    digits = spec.precision < 0 ? repr_real(size)
                                : format_real(size, 'g', std::max<int>(1, static_cast<int>(spec.precision)));
    const bool plain = std::isfinite(size) && digits.find_first_of(".e") == std::string::npos;
    if (plain) digits += ".0";
  } else if (type == '%') {
    digits =
        format_real(size * 100, 'f', spec.precision < 0 ? 6 : static_cast<int>(spec.precision), spec.alternate) + "%";
  } else {
    digits = format_real(size, type == 'n' ? 'g' : type, spec.precision < 0 ? 6 : static_cast<int>(spec.precision),
                         spec.alternate);
  }
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  return lay_out_number(spec, sign_text(spec, std::signbit(value) && !std::isnan(value)), digits.substr(0, whole),
                        digits.substr(whole), 3);
}

std::string format_integer_value(Integer value, const Spec& spec) {
  if (spec.precision >= 0) fail_template("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) fail_template("%c arg not in range");
    std::string text;
    append_code_point(text, static_cast<char32_t>(value));
    return pad(text, spec.width, spec.align ? spec.align : '>', spec.fill);
  }
  const int base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : (spec.type | 0x20) == 'x' ? 16 : 10;
  if (spec.grouping == ',' && base != 10) fail_template("Cannot specify ',' with '{}'.", spec.type);
  std::string digits = integer_digits(value, base);
  std::string sign = sign_text(spec, value < 0);
  if (spec.alternate && base != 10) sign += std::string("0") + spec.type;
  if (spec.type == 'X') digits = to_upper(digits);
  return lay_out_number(spec, sign, digits, "", base == 10 ? 3 : 4);
}

[[noreturn]] void fail_code(const Spec& spec, const Value& value) {
  fail_template("Unknown format code '{}' for object of type '{}'", spec.type, value.type_name());
}

}  // namespace

int64_t checked_format_width(Integer width) {
  if (width > kMaxFormatWidth) fail_template("a width of more than {} in a format is too large", kMaxFormatWidth);
  return static_cast<int64_t>(width);
}

std::string format_real(double value, char type, int precision, bool alternate) {
  if (!std::isfinite(value)) {
    const std::string text = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    return type >= 'A' && type <= 'Z' ? to_upper(text) : text;
  }
  const char format[] = {
      '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0', '\0'};
  std::string text(64, '\0');
  const auto size = static_cast<size_t>(std::snprintf(text.data(), text.size(), format, precision, value));
  if (size >= text.size()) {
    text.resize(size + 1);
    std::snprintf(text.data(), text.size(), format, precision, value);
  }
  text.resize(size);
  return text;
}

std::string integer_digits(Integer value, int base) {
  __extension__ using Magnitude = unsigned __int128;
  Magnitude rest = value < 0 ? Magnitude(0) - static_cast<Magnitude>(value) : static_cast<Magnitude>(value);
  std::string digits;
  do {
    digits += "0123456789abcdef"[static_cast<int>(rest % static_cast<unsigned>(base))];
    rest /= static_cast<unsigned>(base);
  } while (rest != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string pad(std::string_view text, int64_t width, char align, std::string_view fill) {
  const auto length = static_cast<int64_t>(count_code_points(text));
  if (width <= length) return std::string(text);
  const auto missing = static_cast<size_t>(width - length);
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  return TextBuilder().append(left, fill).append(text).append(missing - left, fill).take();
}

std::string format_value(const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return to_text(value);
  if (!value.is_number() && !value.is_string()) {
    fail_template("unsupported format string passed to {}.__format__", value.type_name());
  }
  const Spec spec = SpecReader(spec_text).read();
  if (value.is_string()) {
    if (spec.type != 0 && spec.type != 's') fail_code(spec, value);
    if (spec.align == '=' || spec.sign != '-' || spec.grouping) {
      fail_template("'{}' is no format for a string", spec_text);
    }
    const std::string_view text = value.str();
    const size_t end = spec.precision < 0 ? text.size() : code_point_offset(text, static_cast<size_t>(spec.precision));
    return pad(text.substr(0, end), spec.width, spec.align ? spec.align : '<', spec.fill);
  }
  constexpr std::string_view kIntegerTypes = "bcdoxX", kRealTypes = "eEfFgG%";
  const bool real_type = spec.type && kRealTypes.find(spec.type) != std::string_view::npos;
  const bool integer_type = spec.type && kIntegerTypes.find(spec.type) != std::string_view::npos;
  if (spec.type && !real_type && !integer_type && spec.type != 'n') fail_code(spec, value);
  if (value.is_real() || real_type) {
    if (integer_type) fail_code(spec, value);
    return format_real_value(value.as_real(), spec);
  }
  return format_integer_value(value.as_integer(), spec);
}

}  // namespace millrace::jinja
