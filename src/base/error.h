// The one exception type for errors that users and files cause. Code that reads input throws it; verbs, endpoints and
// the library's entry points catch it.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {

enum class ErrorKind {
  Usage,        // the command line or a request is invalid
  BadFile,      // a file is truncated, corrupt or hostile
  Unsupported,  // well formed, but this build or machine cannot run it
  NotFound,     // a file, model or name does not exist
  Io,           // a system call failed
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

// Makes the message one printable line before throwing: messages may quote hostile files.
[[noreturn]] void throw_error(ErrorKind kind, std::string message);

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw_error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// Throws Io with the text of errno.
[[noreturn]] void fail_errno(const std::string& what);

[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace millrace

// For bugs in this code only: no input may make the expression false. Enabled in every build; keep it out of inner
// loops.
#define MR_ASSERT(expression) \
  (static_cast<bool>(expression) ? void(0) : ::millrace::assertion_failed(#expression, __FILE__, __LINE__))
