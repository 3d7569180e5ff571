#include "text/regex/regex.h"

#include <limits>

#include "base/error.h"
#include "text/regex/matcher.h"
#include "text/unicode/utf8.h"

namespace millrace {

Regex::Regex(std::string_view pattern) : program_(std::make_shared<const RegexProgram>(compile_regex(pattern))) {}

void Regex::find_all(std::string_view text, FunctionRef<void(size_t begin, size_t end)> visit) const {
  if (text.size() > std::numeric_limits<int32_t>::max()) fail(ErrorKind::Unsupported, "the text is longer than 2 GiB");
  const RegexProgram& program = *program_;
  RegexMatcher matcher(program, text);
  size_t last_end = RegexMatcher::kNoMatch;
  for (size_t start = 0; start <= text.size();) {
    const auto step = [&] { return start < text.size() ? utf8_length(text[start]) : 1; };
    if (!program.can_be_empty) {
      while (start < text.size() && !program.first_bytes[static_cast<unsigned char>(text[start])]) ++start;
      if (start == text.size()) return;
    }
    const size_t end = matcher.match(start);
    if (end == RegexMatcher::kNoMatch || (end == start && end == last_end)) {
      start += step();
      continue;
    }
    visit(start, end);
    start = last_end = end;
  }
}

}  // namespace millrace
