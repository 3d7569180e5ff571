// What was printed is on its way. Fails where nobody takes it: the work whose results nobody sees should end.
#pragma once

#include <cstdio>

#include "base/error.h"

namespace millrace {

inline void flush_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_errno("cannot write to stdout");
}

}  // namespace millrace
