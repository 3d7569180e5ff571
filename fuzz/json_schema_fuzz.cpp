// A JSON Schema: refused, or compiled to a grammar whose answers can always be completed.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "fuzz_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size > 4096) return 0;
  walk_grammar({.kind = GrammarSpec::Kind::JsonSchema, .text = std::string(reinterpret_cast<const char*>(data), size)});
  return 0;
}
