// The error of the interpreter. ChatTemplate converts it to Error and adds the line.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace millrace::jinja {

class TemplateError : public std::runtime_error {
 public:
  enum class Origin {
    Template,  // the template is invalid, or an operation fails as in Python
    Raised,    // the template called raise_exception: it rejects the conversation
  };

  // Line 0: the interpreter's current line.
  explicit TemplateError(const std::string& message, int line = 0, Origin origin = Origin::Template)
      : std::runtime_error(message), line_(line), origin_(origin) {}
  int line() const { return line_; }
  Origin origin() const { return origin_; }

 private:
  int line_;
  Origin origin_;
};

template <class... Args>
[[noreturn]] void fail_template(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_template_at(int line, fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError(fmt::format(format, std::forward<Args>(args)...), line);
}

}  // namespace millrace::jinja
