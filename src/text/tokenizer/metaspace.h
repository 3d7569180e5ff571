// "▁", the visible space of SentencePiece. Splits text in front of it where no token spans the cut.
#pragma once

#include <string_view>

#include "base/function_ref.h"
#include "text/tokenizer/vocabulary.h"
#include "text/unicode/code_set.h"

namespace millrace {

inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";

class MetaspaceSplitter {
 public:
  explicit MetaspaceSplitter(const Vocabulary& vocabulary);

  void split(std::string_view text, FunctionRef<void(std::string_view word)> visit) const;

 private:
  bool enabled_ = false;
  CodeSet joined_;  // characters that precede a ▁ inside of some token: no cut between them
};

}  // namespace millrace
