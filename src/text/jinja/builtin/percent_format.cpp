#include "text/jinja/builtin/percent_format.h"

#include <cmath>

#include "text/jinja/builtin/format_spec.h"
#include "text/jinja/operators.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/content.h"
#include "text/jinja/value/html.h"
#include "text/jinja/value/object.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/text_builder.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

struct Directive {
  bool left = false, plus = false, space = false, zero = false, alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
};

class PercentFormatter {
 public:
  PercentFormatter(const Value& format, const Value& arguments)
      : whole_(format),
        format_(format.str()),
        markup_(format.is_markup()),
        arguments_(arguments),
        content_(has_content(arguments)) {}

  Value run() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out_.append_piece(whole_, format_.substr(at_, percent - at_));
      at_ = percent + 1;
      if (percent < format_.size()) directive();
    }
    // Like Python, allows an unused argument if it is subscriptable and neither a tuple nor a string.
    const bool subscriptable =
        arguments_.is_dict() || arguments_.is_list() || arguments_.is_undefined() || arguments_.type_name() == "range";
    const bool all_used = arguments_.is_tuple() ? used_ == arguments_.items().size() : used_ > 0 || subscriptable;
    if (!all_used) fail_template("not all arguments converted during string formatting");
    return out_.take_value(markup_);
  }

 private:
  char peek() const {
    if (at_ >= format_.size()) fail_template("incomplete format");
    return format_[at_];
  }

  void directive() {
    const bool named = peek() == '(';
    Value argument;
    if (named) argument = named_argument();
    Directive d = flags();
    d.width = number(0);
    if (d.width < 0) d.left = true, d.width = -d.width;
    if (peek() == '.') {
      ++at_;
      d.precision = std::max<int64_t>(0, number(0));
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    const char type = peek();
    ++at_;
    if (type == '%') {
      out_.append("%");
      return;
    }
    if (!named) argument = next_argument();
    convert(type, d, argument);
  }

  Directive flags() {
    Directive d;
    while (true) {
      switch (peek()) {
        case '-':
          d.left = true;
          break;
        case '+':
          d.plus = true;
          break;
        case ' ':
          d.space = true;
          break;
        case '0':
          d.zero = true;
          break;
        case '#':
          d.alternate = true;
          break;
        default:
          return d;
      }
      ++at_;
    }
  }

  int64_t number(int64_t otherwise) {
    if (peek() == '*') {
      ++at_;
      const Value value = next_argument();
      if (!value.is_int_like()) fail_template("* wants int");
      const Integer size = value.as_integer();
      return size < 0 ? -checked_format_width(-size) : checked_format_width(size);
    }
    if (peek() < '0' || peek() > '9') return otherwise;
    Integer value = 0;
    while (peek() >= '0' && peek() <= '9') value = checked_format_width(value * 10 + (format_[at_++] - '0'));
    return static_cast<int64_t>(value);
  }

  Value named_argument() {
    if (!arguments_.is_dict()) fail_template("format requires a mapping");
    int open = 1;
    const size_t start = ++at_;
    for (; open > 0; ++at_) {
      if (at_ >= format_.size()) fail_template("incomplete format key");
      if (format_[at_] == '(') ++open;
      if (format_[at_] == ')') --open;
    }
    const std::string_view key = format_.substr(start, at_ - 1 - start);
    const Value* value = arguments_.as_dict().find(key);
    if (!value) fail_template("the format's key {} is not there", in_quotes(key));
    return *value;
  }

  Value next_argument() {
    if (arguments_.is_tuple()) {
      if (used_ >= arguments_.items().size()) fail_template("not enough arguments for format string");
      return arguments_.items()[used_++];
    }
    if (used_++ > 0) fail_template("not enough arguments for format string");
    return arguments_;
  }

  void convert(char type, const Directive& d, const Value& value) {
    switch (type) {
      case 's':
        return text(d, markup_ ? escape_html(value) : to_text(value));
      case 'r':
      case 'a':
        return text(d, representation(value, type == 'a'));
      case 'c':
        return text({.left = d.left, .width = d.width}, character(value));
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return integer(type, d, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return real(type, d, value);
      default:
        fail_template("unsupported format character in '%' formatting");
    }
  }

  std::string representation(const Value& value, bool ascii_only) const {
    const std::string text = ascii_only && value.is_string() ? repr_text(value.str(), true) : repr(value);
    return markup_ ? escape_html_text(text) : text;
  }

  static std::string character(const Value& value) {
    if (value.is_string() && value.text().length == 1) return value.str();
    if (!value.is_int_like()) fail_template("%c requires int or char");
    return format_value(Value::integer(value.as_integer()), "c");
  }

  void text(const Directive& d, std::string_view value) {
    if (d.precision >= 0) value = value.substr(0, code_point_offset(value, static_cast<size_t>(d.precision)));
    out_.append_content(pad(value, d.width, d.left ? '<' : '>'), content_);
  }

  void number(const Directive& d, std::string sign, std::string digits) {
    if (d.zero && !d.left) {
      digits = pad(digits, d.width - static_cast<int64_t>(sign.size()), '>', "0");
    }
    out_.append(pad(sign + digits, d.width, d.left ? '<' : '>'));
  }

  static std::string sign_of(const Directive& d, bool negative) {
    return negative ? "-" : d.plus ? "+" : d.space ? " " : "";
  }

  void integer(char type, const Directive& d, const Value& value) {
    require_defined(value);
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (!value.is_int_like() && !(decimal && value.is_real())) {
      fail_template("%{} format: a number is required, not {}", type, value.type_name());
    }
    const Integer i = value.is_real() ? truncate_to_integer(value.as_real()) : value.as_integer();
    std::string digits = integer_digits(i, decimal ? 10 : type == 'o' ? 8 : 16);
    if (type == 'X') digits = to_upper(digits);
    digits = pad(digits, d.precision, '>', "0");
    std::string sign = sign_of(d, i < 0);
    if (d.alternate && !decimal) sign += std::string("0") + type;
    number(d, sign, digits);
  }

  void real(char type, const Directive& d, const Value& value) {
    require_defined(value);
    if (!value.is_number()) fail_template("must be real number, not {}", value.type_name());
    const double x = value.as_real();
    const int precision = d.precision < 0 ? 6 : static_cast<int>(d.precision);
    number(d, sign_of(d, std::signbit(x) && !std::isnan(x)), format_real(std::fabs(x), type, precision, d.alternate));
  }

  const Value& whole_;
  const std::string_view format_;
  const bool markup_;
  const Value& arguments_;
  const bool content_;  // of the arguments
  size_t at_ = 0;
  size_t used_ = 0;
  TextBuilder out_;
};

}  // namespace

Value percent_format(const Value& format, const Value& arguments) { return PercentFormatter(format, arguments).run(); }

}  // namespace millrace::jinja
