#include "server/requests/api_error.h"

#include "server/requests/json.h"

namespace millrace {
namespace {

// OpenAI's names.
const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

const char* anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

// Clients of Anthropic recognise a full context by the beginning of the message.
std::string anthropic_message(const ApiProblem& problem) {
  return problem.code == "context_length_exceeded" ? "prompt is too long: " + problem.message : problem.message;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

ApiProblem to_problem(const Error& error) {
  const std::string message = error.what();
  switch (error.kind()) {
    case ErrorKind::Usage:
      if (message.starts_with("This model's maximum context length is")) {
        return {400, message, "", "context_length_exceeded"};
      }
      return {400, message, "", "invalid_value"};
    case ErrorKind::BadFile:
    case ErrorKind::Unsupported:
      return {400, message, "", "unsupported_value"};
    case ErrorKind::NotFound:
      return {404, message, "", ""};
    case ErrorKind::Busy:
      return {429, message, "", "queue_full"};
    case ErrorKind::OutOfMemory:
      return {503, message, "", "out_of_memory"};
    default:
      return {500, message, "", ""};
  }
}

std::string error_body(const ApiProblem& problem, Protocol protocol) {
  if (protocol == Protocol::Ollama) return to_text({{"error", problem.message}});
  if (protocol == Protocol::Anthropic) {
    Json error{{"type", anthropic_type(problem.status)}, {"message", anthropic_message(problem)}};
    if (!problem.anthropic_code.empty()) error["details"] = {{"error_code", problem.anthropic_code}};
    return to_text({{"type", "error"}, {"error", std::move(error)}});
  }
  return to_text({{"error",
                   {{"message", problem.message},
                    {"type", error_type(problem.status)},
                    {"param", text_or_null(problem.param)},
                    {"code", text_or_null(problem.code)}}}});
}

HttpReply error_reply(const ApiProblem& problem, Protocol protocol) {
  HttpReply reply{.status = problem.status, .body = error_body(problem, protocol)};
  if (problem.status == 429 || problem.status == 503) reply.headers.emplace_back("Retry-After", "1");
  if (problem.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

}  // namespace millrace
