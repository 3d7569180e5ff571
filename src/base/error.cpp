#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/printable.h"

namespace millrace {

void throw_error(ErrorKind kind, std::string message) {
  constexpr size_t kLongest = 1000;
  if (message.size() > kLongest) message = message.substr(0, kLongest) + "...";
  throw Error(kind, printable(message));
}

void fail_errno(const std::string& what) {
  const int code = errno;
  fail(code == ENOENT ? ErrorKind::NotFound : ErrorKind::Io, "{}: {}", what, std::strerror(code));
}

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "millrace: internal error: %s does not hold (%s:%d); please report it\n", expression, file,
               line);
  std::abort();
}

}  // namespace millrace
