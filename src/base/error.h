// The one exception for what users and files cause. Thrown where input is read, caught at the borders.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {

enum class ErrorKind {
  Usage,        // the command line or a request asks for something that makes no sense
  BadFile,      // a file is truncated, corrupt or hostile
  Unsupported,  // well formed, but not something we can run
  NotFound,     // a file, model or name that is not there
  Io,           // the operating system said no
  Network,      // fetching failed
  OutOfMemory,  // the memory plan does not fit
  Cancelled,    // the user stopped it
  Busy,         // too much is asked at once: try again later
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Throws with the message made one printable line: text from hostile files ends up in it.
[[noreturn]] void throw_error(ErrorKind kind, std::string message);

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw_error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// Throws Io with the text of errno.
[[noreturn]] void fail_errno(const std::string& what);

[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace millrace

// For our own mistakes only: no input may ever reach a false one. On in every build; keep it out of inner loops.
#define MR_ASSERT(expression) \
  (static_cast<bool>(expression) ? void(0) : ::millrace::assertion_failed(#expression, __FILE__, __LINE__))
