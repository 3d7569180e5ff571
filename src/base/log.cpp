#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace millrace {

spdlog::logger& log() {
  static spdlog::logger logger = [] {
    spdlog::logger made("millrace", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made.set_pattern("%^%l%$: %v");
    made.set_level(spdlog::level::warn);
    return made;
  }();
  return logger;
}

void set_verbosity(int verbosity) {
  log().set_level(verbosity <= 0 ? spdlog::level::warn : verbosity == 1 ? spdlog::level::info : spdlog::level::debug);
}

}  // namespace millrace
