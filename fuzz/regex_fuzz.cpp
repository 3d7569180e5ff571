// A regex and, after a zero byte, a text. The matcher must give the same answer with and without memoization.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/regex/matcher.h"
#include "text/regex/regex.h"
#include "text/unicode/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = input.find('\0');
  const std::string text = repair_utf8(border == std::string_view::npos ? "a 1\nbc" : input.substr(border + 1));
  try {
    Regex(input.substr(0, border)).find_all(text, [](size_t, size_t) {});
    if (text.size() > 300) return 0;
    const RegexProgram program = compile_regex(input.substr(0, border));
    RegexMatcher trying(program, text), remembering(program, text, true);
    for (size_t start = 0; start <= text.size(); start += start < text.size() ? utf8_length(text[start]) : 1) {
      MR_ASSERT(trying.match(start) == remembering.match(start));
    }
  } catch (const Error&) {
  }
  return 0;
}
