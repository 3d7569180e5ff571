// Errors as clients receive them, in the form of the protocol that they speak.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.h"
#include "server/http/http.h"

namespace millrace {

enum class Protocol : uint8_t { OpenAi, Anthropic, Ollama };

struct ApiProblem {
  int status = 400;
  std::string message;
  std::string param;                // the invalid field; empty: none
  std::string code;                 // machine-readable; empty: none
  std::string anthropic_code = {};  // details.error_code of Anthropic's errors; empty: none
};

class ApiError : public std::runtime_error {
 public:
  explicit ApiError(ApiProblem problem) : std::runtime_error(problem.message), problem_(std::move(problem)) {}
  const ApiProblem& problem() const { return problem_; }

 private:
  ApiProblem problem_;
};

// 400 about the whole request.
template <class... Args>
[[noreturn]] void fail_request(fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError({400, fmt::format(format, std::forward<Args>(args)...), "", ""});
}

// 400 about one field.
template <class... Args>
[[noreturn]] void fail_field(std::string param, std::string code, fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError({400, fmt::format(format, std::forward<Args>(args)...), std::move(param), std::move(code)});
}

// Maps an internal error to a status and a message for the client.
ApiProblem to_problem(const Error& error);

// One line: {"error": {"message", "type", "param", "code"}} for OpenAI, {"type": "error", "error": {"type", "message"}}
// for Anthropic, {"error": message} for Ollama.
std::string error_body(const ApiProblem& problem, Protocol protocol = Protocol::OpenAi);
HttpReply error_reply(const ApiProblem& problem, Protocol protocol = Protocol::OpenAi);

}  // namespace millrace
