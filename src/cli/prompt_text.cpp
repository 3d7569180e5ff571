#include "cli/prompt_text.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ascii.h"
#include "base/error.h"
#include "base/tell.h"
#include "cli/read_text.h"

namespace millrace {
namespace {

// Whether stdin brings a document for the prompt. A terminal and /dev/null bring none, and neither do sockets, which
// programs leave open for their children. A file that was read from before belongs to the loop around this program, as
// in `while read line`.
bool has_document() {
  struct stat in {};
  if (::fstat(STDIN_FILENO, &in) != 0) return false;
  return S_ISFIFO(in.st_mode) || (S_ISREG(in.st_mode) && ::lseek(STDIN_FILENO, 0, SEEK_CUR) == 0);
}

// A pipe that a parent process forgot to close would wait for ever without a word.
std::string read_document() {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  if (::poll(&in, 1, /*milliseconds=*/2000) == 0)
    tell(Stream::Stderr, "waiting for the text of stdin; use < /dev/null if there is none\n");
  return read_file_or_stdin("-");
}

std::string join(const std::string& prompt, const std::string& document) {
  return prompt + (prompt.empty() || document.empty() ? "" : "\n\n") + document;
}

}  // namespace

std::string prompt_text(const std::optional<std::string>& argument, const std::string& file) {
  if (!argument && file.empty() && isatty(STDIN_FILENO) != 0)
    fail(ErrorKind::Usage, "give one of PROMPT, --file and --tokens, or the prompt on stdin");
  std::string text;
  if (!file.empty()) {
    text = read_file_or_stdin(file);
  } else if (!argument || *argument == "-") {
    text = read_file_or_stdin("-");
  } else {
    text = has_document() ? join(*argument, read_document()) : *argument;
  }
  if (ascii_trim(text).empty()) {
    const std::string from = !file.empty() ? file : !argument || *argument == "-" ? "stdin" : "";
    fail(ErrorKind::Usage, "{}{}the prompt is empty", from, from.empty() ? "" : ": ");
  }
  return text;
}

}  // namespace millrace
