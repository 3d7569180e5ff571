#include "base/tell.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace millrace {

void tell_text(Stream stream, std::string_view text) {
  // Not stdio: it keeps what it could not write, and a later flush would report it as a lost answer.
  if (stream == Stream::Stdout) std::fflush(stdout);
  while (!text.empty()) {
    const ssize_t written = ::write(static_cast<int>(stream), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace millrace
