// Regexes of tokenizers, matched in time linear in the text, whatever the regex and the text.  Why not a library:
// backtracking engines (PCRE2, Oniguruma) take quadratic or worse time on hostile text, linear ones (RE2) have no
// lookahead, which every tokenizer uses, and none agrees with Hugging Face on dialect and version of Unicode. Ours
// backtracks too, so that it prefers the same matches; but when a text needs many steps, it memoizes which choices have
// failed at which positions, and tries none twice.
#pragma once

#include <memory>
#include <string_view>

#include "base/function_ref.h"

namespace millrace {

struct RegexProgram;

class Regex {
 public:
  explicit Regex(std::string_view pattern);  // throws Unsupported, see syntax.h

  // Visits the matches from left to right; they do not overlap. `text` must be valid UTF-8. An empty match directly
  // behind another match is skipped.
  void find_all(std::string_view text, FunctionRef<void(size_t begin, size_t end)> visit) const;

 private:
  std::shared_ptr<const RegexProgram> program_;
};

}  // namespace millrace
