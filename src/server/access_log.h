// The server's log: one line per event on stderr, as JSON or as text. It never contains API keys, prompts or answers.
#pragma once

#include <string>
#include <string_view>

#include "server/requests/json.h"

namespace millrace {

class Call;
struct ApiProblem;

class AccessLog {
 public:
  enum class Format { Json, Text };
  explicit AccessLog(Format format) : format_(format) {}

  void event(std::string_view name, const Json& fields, std::string_view level = "info") const;
  void request(const Call& call, int status, double seconds) const;
  void problem(const Call& call, const ApiProblem& problem) const;  // why a request was refused

 private:
  Format format_;
};

}  // namespace millrace
