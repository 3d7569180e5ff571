#include "text/jinja/value/repr.h"

#include <charconv>
#include <cmath>

#include "text/jinja/template_error.h"
#include "text/jinja/value/object.h"
#include "text/jinja/value/text_builder.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

void append_escaped(std::string& out, char32_t c, char quote, bool ascii_only) {
  if (c == static_cast<unsigned char>(quote) || c == '\\') {
    out += '\\';
    out += static_cast<char>(c);
  } else if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (c < 0x80 ? c >= 0x20 && c != 0x7f : !ascii_only && is_printable(c)) {
    append_code_point(out, c);
  } else {
    const auto code = static_cast<uint32_t>(c);
    out += code < 0x100     ? fmt::format("\\x{:02x}", code)
           : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                            : fmt::format("\\U{:08x}", code);
  }
}

void append_repr(TextBuilder& out, const Value& value);

void append_sequence(TextBuilder& out, const Value& value) {
  out.append(value.is_list() ? "[" : "(");
  const auto& items = value.items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(out, items[i]);
  }
  if (value.is_tuple() && items.size() == 1) out.append(",");
  out.append(value.is_list() ? "]" : ")");
}

void append_dict(TextBuilder& out, const Dict& dict) {
  out.append("{");
  bool first = true;
  for (const auto& [key, item] : dict.entries()) {
    if (!first) out.append(", ");
    first = false;
    append_repr(out, key);
    out.append(": ");
    append_repr(out, item);
  }
  out.append("}");
}

void append_repr(TextBuilder& out, const Value& value) {
  Budget::spend();
  if (value.is_string()) {
    const std::string text = repr_text(value.str());
    out.append(value.is_markup() ? "Markup(" + text + ")" : text);
  } else if (value.is_sequence()) {
    append_sequence(out, value);
  } else if (value.is_dict()) {
    append_dict(out, value.as_dict());
  } else if (value.is_object()) {
    out.append(value.as_object()->repr());
  } else if (value.is_undefined()) {
    out.append("Undefined");
  } else {
    out.append(to_text(value));
  }
}

}  // namespace

std::string to_text(const Value& value) {
  if (value.is_string()) return value.str();
  if (value.is_undefined()) return {};
  if (value.is_none()) return "None";
  if (value.is_boolean()) return value.as_boolean() ? "True" : "False";
  if (value.is_integer()) return integer_text(value.as_integer());
  if (value.is_real()) return repr_real(value.as_real());
  return repr(value);
}

std::string repr(const Value& value) {
  TextBuilder out;
  append_repr(out, value);
  return out.take();
}

std::string repr_text(std::string_view text, bool ascii_only) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    append_escaped(out, next_code_point(text, at), quote, ascii_only);
    Budget::check_text(out.size());
  }
  return out + quote;
}

std::string integer_text(Integer value) { return fmt::format("{}", value); }

std::string repr_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view scientific(buffer, static_cast<size_t>(end - buffer));

  const bool negative = scientific.front() == '-';
  if (negative) scientific.remove_prefix(1);
  const size_t e = scientific.find('e');
  std::string digits(1, scientific[0]);
  if (e > 2) digits += scientific.substr(2, e - 2);
  int exponent = 0;
  const char* exponent_begin = scientific.data() + e + (scientific[e + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_begin, scientific.data() + scientific.size(), exponent);

  std::string text;
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    text = digits.substr(0, 1);
    if (count > 1) text += "." + digits.substr(1);
    text += fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    text = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else if (exponent + 1 >= count) {
    text = digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  } else {
    text = digits.substr(0, static_cast<size_t>(exponent + 1)) + "." + digits.substr(static_cast<size_t>(exponent + 1));
  }
  return negative ? "-" + text : text;
}

}  // namespace millrace::jinja
