// A grammar in EBNF or, after a byte 'r', a regular expression.
#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size > 2048) return 0;
  std::string text(reinterpret_cast<const char*>(data), size);
  const bool regex = text.starts_with('r') && !text.starts_with("root");
  if (regex) text.erase(0, 1);
  walk_grammar({.kind = regex ? GrammarSpec::Kind::Regex : GrammarSpec::Kind::Ebnf, .text = std::move(text)});
  return 0;
}
