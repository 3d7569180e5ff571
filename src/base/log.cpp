#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace millrace {

void set_verbosity(int verbosity) {
  static const auto logger = [] {
    auto made = spdlog::stderr_color_mt("millrace");
    made->set_pattern("%^%l%$: %v");
    spdlog::set_default_logger(made);
    return made;
  }();
  logger->set_level(verbosity <= 0   ? spdlog::level::warn
                    : verbosity == 1 ? spdlog::level::info
                                     : spdlog::level::debug);
}

}  // namespace millrace
