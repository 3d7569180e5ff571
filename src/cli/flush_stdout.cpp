#include "cli/flush_stdout.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <system_error>

#include "base/error.h"

namespace millrace {
namespace {

// errno may belong to another call by now: an earlier print may have hit the closed pipe.
bool is_reader_gone() {
  pollfd out{STDOUT_FILENO, 0, 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

}  // namespace

void flush_stdout() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  if (is_reader_gone()) throw std::system_error(std::make_error_code(std::errc::broken_pipe));
  fail_errno("cannot write to stdout");
}

}  // namespace millrace
