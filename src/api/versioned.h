// Structs of the C interface across versions: `size` says how much of a struct the program knows.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace millrace {

// The program's fields over the defaults. A program of a newer interface may set fields that this library would ignore.
template <class Options>
Options known_fields(const Options* given, Options defaults) {
  if (given == nullptr) return defaults;
  if (given->size < sizeof(size_t))
    fail(ErrorKind::Usage, "options without a size: call their init function before setting fields");
  if (given->size > sizeof(Options))
    fail(ErrorKind::Usage, "the program was compiled for a newer libmillrace: update the library");
  std::memcpy(&defaults, given, given->size);
  defaults.size = sizeof(Options);
  return defaults;
}

// Fills the part of a result that the program knows. Its `size` stays.
template <class Result>
void give(Result result, Result* to) {
  if (to == nullptr || to->size < sizeof(size_t)) fail(ErrorKind::Usage, "a result struct without its size");
  const size_t size = to->size;
  std::memcpy(to, &result, std::min(size, sizeof(Result)));
  to->size = size;
}

}  // namespace millrace
