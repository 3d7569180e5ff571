#include "text/unicode/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "text/unicode/code_set.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

int combining_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// utf8proc sorts marks by insertion, which is quadratic for a text of marks only.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto by_class = [](utf8proc_int32_t a, utf8proc_int32_t b) { return combining_class(a) < combining_class(b); };
  for (auto begin = codes.begin(); begin != codes.end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, codes.end(), [](utf8proc_int32_t code) { return combining_class(code) == 0; });
    if (!std::is_sorted(begin, end, by_class)) std::stable_sort(begin, end, by_class);
    begin = end;
  }
}

std::vector<utf8proc_int32_t> decomposed(std::string_view text, bool compatible) {
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  static const CodeTable too_young{CodeSet(never_decomposed())};
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  std::array<utf8proc_int32_t, 32> buffer;  // no character decomposes into more than 18
  for (size_t i = 0; i < text.size();) {
    const Character c = decode_utf8(text.data() + i);
    i += c.length;
    if (too_young.contains(c.code)) {
      codes.push_back(static_cast<utf8proc_int32_t>(c.code));
      continue;
    }
    int last_class = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), buffer.data(), buffer.size(),
                                               options, &last_class);
    MR_ASSERT(count >= 0 && count <= static_cast<utf8proc_ssize_t>(buffer.size()));
    codes.insert(codes.end(), buffer.begin(), buffer.begin() + count);
  }
  order_marks(codes);
  return codes;
}

}  // namespace

std::string normalized(std::string_view text, UnicodeForm form) {
  const bool composed = form == UnicodeForm::Nfc || form == UnicodeForm::Nfkc;
  const bool compatible = form == UnicodeForm::Nfkc || form == UnicodeForm::Nfkd;
  // Characters below these lead bytes (U+0300, U+00C0, U+00A0) stay unchanged.
  const unsigned char plain = form == UnicodeForm::Nfc ? 0xCC : compatible ? 0xC2 : 0xC3;
  if (std::all_of(text.begin(), text.end(), [plain](char c) { return static_cast<unsigned char>(c) < plain; })) {
    return std::string(text);
  }

  std::vector<utf8proc_int32_t> codes = decomposed(text, compatible);
  size_t count = codes.size();
  if (composed) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    count = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(count), options);
  }
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < count; ++i) append_utf8(result, static_cast<char32_t>(codes[i]));
  return result;
}

std::string lowercased(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Character c = decode_utf8(text.data() + i);
    if (c.code == 0x130) {
      result += "i\xCC\x87";  // the one character whose lower case is two
    } else {
      append_utf8(result, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
    }
    i += c.length;
  }
  return result;
}

}  // namespace millrace
