#include "text/jinja/html.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "base/ascii.h"
#include "text/jinja/repr.h"
#include "text/jinja/template_error.h"
#include "text/jinja/text_builder.h"
#include "text/jinja/unicode.h"

namespace millrace::jinja {
namespace {

std::optional<char32_t> named_character(std::string_view name) {
  constexpr std::pair<std::string_view, char32_t> kNames[] = {
      {"amp", '&'},       {"lt", '<'},       {"gt", '>'},       {"quot", '"'},     {"apos", '\''},
      {"nbsp", 0xa0},     {"copy", 0xa9},    {"reg", 0xae},     {"laquo", 0xab},   {"raquo", 0xbb},
      {"hellip", 0x2026}, {"mdash", 0x2014}, {"ndash", 0x2013}, {"lsquo", 0x2018}, {"rsquo", 0x2019},
      {"ldquo", 0x201c},  {"rdquo", 0x201d}, {"trade", 0x2122}, {"euro", 0x20ac},  {"times", 0xd7}};
  for (const auto& [known, code_point] : kNames) {
    if (known == name) return code_point;
  }
  return std::nullopt;
}

// The number of "#123" or "#x1f"; a code point that no text may hold becomes the replacement character.
char32_t numbered_character(std::string_view digits, int base) {
  uint64_t value = 0;
  for (char c : digits) {
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    value = std::min<uint64_t>(value * static_cast<uint64_t>(base) + static_cast<uint64_t>(digit), 0x110000);
  }
  const bool valid = value != 0 && value < 0x110000 && !(value >= 0xd800 && value < 0xe000);
  return valid ? static_cast<char32_t>(value) : 0xfffd;
}

// Appends what the reference that starts behind '&' stands for, and returns how many bytes it took (0: no reference).
size_t append_reference(std::string& out, std::string_view text) {
  size_t end = 0;
  if (!text.empty() && text[0] == '#') {
    const bool hex = text.size() > 1 && (text[1] | 0x20) == 'x';
    const size_t start = hex ? 2 : 1;
    const auto is_digit = [&](char c) {
      return (c >= '0' && c <= '9') || (hex && (c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    };
    for (end = start; end < text.size() && is_digit(text[end]);) ++end;
    if (end == start) return 0;
    append_code_point(out, numbered_character(text.substr(start, end - start), hex ? 16 : 10));
  } else {
    while (end < text.size() && is_ascii_alnum(text[end])) ++end;
    if (end == 0 || end == text.size() || text[end] != ';') return 0;
    const std::optional<char32_t> known = named_character(text.substr(0, end));
    if (!known) fail_template("striptags does not know the character reference &{};", text.substr(0, end));
    append_code_point(out, *known);
  }
  return end < text.size() && text[end] == ';' ? end + 1 : end;
}

std::string resolve_references(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t taken = text[at] == '&' ? append_reference(out, text.substr(at + 1)) : 0;
    if (taken == 0) out += text[at];
    at += taken + 1;
  }
  return out;
}

std::string remove_tags(std::string_view text) {
  std::string out;
  size_t at = 0;
  while (true) {
    const size_t start = text.find('<', at);
    if (start == std::string_view::npos) break;
    const bool comment = text.substr(start, 4) == "<!--";
    const size_t end = comment ? find_text(text, "-->", start + 4) : text.find('>', start);
    if (end == std::string_view::npos) break;
    out += text.substr(at, start - at);
    at = end + (comment ? 3 : 1);
  }
  return out.append(text.substr(at));
}

std::string collapse_spaces(std::string_view text) {
  std::string out;
  bool pending = false;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (is_space(next_code_point(text, at))) {
      pending = !out.empty();
      continue;
    }
    if (pending) out += ' ';
    pending = false;
    out += text.substr(start, at - start);
  }
  return out;
}

}  // namespace

std::string escape_html_text(std::string_view text) {
  TextBuilder out;
  for (size_t at = 0; at < text.size();) {
    const size_t special = std::min(text.find_first_of("&<>\"'", at), text.size());
    out.append(text.substr(at, special - at));
    if (special == text.size()) break;
    const char c = text[special];
    out.append(c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&#34;" : "&#39;");
    at = special + 1;
  }
  return out.take();
}

std::string escape_html(const Value& value) {
  return value.is_markup() ? value.str() : escape_html_text(to_text(value));
}

std::string strip_tags(std::string_view text) { return resolve_references(collapse_spaces(remove_tags(text))); }

}  // namespace millrace::jinja
