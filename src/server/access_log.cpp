#include "server/access_log.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/log.h"
#include "server/call.h"

namespace millrace {

void AccessLog::event(std::string_view name, const Json& fields, std::string_view level) const {
  const std::string time = log_time(std::chrono::system_clock::now());
  std::string line;
  if (format_ == Format::Json) {
    Json json{{"time", time}, {"level", level}, {"event", name}};
    json.update(fields);
    line = to_text(json);
  } else {
    line = fmt::format("{} {} {}", time, level, name);
    for (const auto& [key, value] : fields.items()) line += fmt::format(" {}={}", key, to_text(value));
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call, so that lines of different threads do not interleave
}

void AccessLog::request(const Call& call, int status, double seconds) const {
  Json fields{{"id", call.id()},  {"method", call.request().method},      {"path", call.request().path.substr(0, 200)},
              {"status", status}, {"ms", std::round(seconds * 1e4) / 10}, {"peer", call.request().peer}};
  if (!call.client.empty()) fields["client"] = call.client;
  if (call.usage.prompt_tokens > 0) {
    fields["prompt_tokens"] = call.usage.prompt_tokens;
    fields["cached_tokens"] = call.usage.cached_tokens;
    fields["completion_tokens"] = call.usage.completion_tokens;
  }
  event("request", fields);
}

void AccessLog::problem(const Call& call, const ApiProblem& problem) const {
  event("refused",
        {{"id", call.id()},
         {"status", problem.status},
         {"code", problem.code},
         {"message", problem.message.substr(0, 300)}},
        problem.status >= 500 ? "error" : "info");
}

}  // namespace millrace
