#include "text/jinja/value/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/jinja/value/case_tables.h"

namespace millrace::jinja {
namespace {

constexpr char32_t kCapitalSigma = 0x3a3, kSmallSigma = 0x3c3, kFinalSigma = 0x3c2, kDottedCapitalI = 0x130;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

template <size_t N>
bool contains(const CodePointRange (&ranges)[N], char32_t c) {
  const auto* after =
      std::upper_bound(std::begin(ranges), std::end(ranges), c, [](char32_t x, auto& r) { return x < r.first; });
  return after != std::begin(ranges) && c <= std::prev(after)->last;
}

template <size_t N>
const CaseExpansion* find_expansion(const CaseExpansion (&table)[N], char32_t c) {
  const auto* found =
      std::lower_bound(std::begin(table), std::end(table), c, [](auto& row, char32_t x) { return row.from < x; });
  return found != std::end(table) && found->from == c ? found : nullptr;
}

void append_expansion(std::string& out, const CaseExpansion& row) {
  for (char32_t c : row.to) {
    if (c != 0) append_code_point(out, c);
  }
}

void append_upper(std::string& out, char32_t c) {
  if (const CaseExpansion* row = find_expansion(kUpperExpansions, c)) return append_expansion(out, *row);
  append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (const CaseExpansion* row = find_expansion(kTitleExpansions, c)) return append_expansion(out, *row);
  append_code_point(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      static constexpr std::u32string_view kPunctuation =
          U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";
      return kPunctuation.find(c) != std::u32string_view::npos;
  }
}

// Unicode's Final_Sigma: a cased letter in front, none behind, ignoring case-ignorable characters.
bool sigma_is_final(std::string_view text, size_t start, size_t end) {
  bool cased_before = false;
  for (size_t at = start; at > 0;) {
    at = previous_code_point_start(text, at);
    size_t next = at;
    const char32_t c = next_code_point(text, next);
    if (is_case_ignorable(c)) continue;
    cased_before = is_cased(c);
    break;
  }
  if (!cased_before) return false;
  for (size_t at = end; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

// Appends the lower case of the code point at [start, end). The surrounding text decides about the final sigma.
void append_lower(std::string& out, std::string_view text, size_t start, size_t end, char32_t c) {
  if (c == kCapitalSigma) return append_code_point(out, sigma_is_final(text, start, end) ? kFinalSigma : kSmallSigma);
  append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  if (c == kDottedCapitalI) append_code_point(out, 0x307);
}

// Calls visit(code point, start, end) for each code point.
template <class Visit>
void for_each_code_point(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = next_code_point(text, at);
    visit(c, start, at);
  }
}

}  // namespace

size_t code_point_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if (is_continuation(text[at])) continue;
    if (index-- == 0) break;
  }
  return at;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_alnum(char32_t c) {
  const auto kind = category(c);
  return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) ||
         (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) { return is_decimal(c) || contains(kOtherDigit, c); }

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO) || contains(kOtherNumeric, c);
}

bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || contains(kOtherUpper, c); }

bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || contains(kOtherLower, c); }

bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  const auto kind = category(c);
  return kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS;
}

bool is_identifier(std::string_view text) {
  bool first = true;
  for (size_t at = 0; at < text.size(); first = false) {
    const char32_t c = next_code_point(text, at);
    const bool starts = c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
    if (!starts && (first || !is_decimal(c))) return false;
  }
  return !first;
}

std::string to_upper(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t, size_t) { append_upper(out, c); });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t start, size_t end) { append_lower(out, text, start, end, c); });
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool inside_word = false;
  for_each_code_point(text, [&](char32_t c, size_t start, size_t end) {
    inside_word ? append_lower(out, text, start, end, c) : append_title(out, c);
    inside_word = is_cased(c);
  });
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t start, size_t end) {
    start == 0 ? append_title(out, c) : append_lower(out, text, start, end, c);
  });
  return out;
}

std::string to_swapped_case(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t start, size_t end) {
    if (is_upper(c)) {
      append_lower(out, text, start, end, c);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_code_point(out, c);
    }
  });
  return out;
}

std::string to_case_folded(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t, size_t) {
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < count && i < 8; ++i) append_code_point(out, static_cast<char32_t>(folded[i]));
  });
  return out;
}

std::string_view strip_left(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    if (!is_space(next_code_point(text, next))) break;
    at = next;
  }
  return text.substr(at);
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const size_t start = previous_code_point_start(text, text.size());
    size_t at = start;
    if (!is_space(next_code_point(text, at))) break;
    text = text.substr(0, start);
  }
  return text;
}

}  // namespace millrace::jinja
