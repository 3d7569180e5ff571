#include "base/log.h"

#include <fmt/chrono.h>
#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "base/json_text.h"

namespace millrace {
namespace {

class JsonLines final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& to) override {
    const auto level = spdlog::level::to_string_view(message.level);
    std::string line = fmt::format(R"({{"time":"{}","level":"{}","event":"message","message":)", log_time(message.time),
                                   std::string_view(level.data(), level.size()));
    append_json_string({message.payload.data(), message.payload.size()}, line);
    line += "}\n";
    to.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonLines>(); }
};

}  // namespace

spdlog::logger& log() {
  static spdlog::logger logger = [] {
    spdlog::logger made("millrace", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made.set_pattern("%^%l%$: %v");
    made.set_level(spdlog::level::warn);
    return made;
  }();
  return logger;
}

void log_as_json() { log().set_formatter(std::make_unique<JsonLines>()); }

std::string log_time(std::chrono::system_clock::time_point time) {
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(time)), millis);
}

void set_verbosity(int verbosity) {
  log().set_level(verbosity <= 0 ? spdlog::level::warn : verbosity == 1 ? spdlog::level::info : spdlog::level::debug);
}

}  // namespace millrace
