#include "formats/json.h"

#include "base/error.h"

namespace millrace {

nlohmann::json parse_json(std::string_view text, const std::string& origin) {
  constexpr int kDeepest = 64;
  const auto check_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kDeepest) fail(ErrorKind::BadFile, "{}: JSON nested deeper than {}", origin, kDeepest);
    return true;
  };
  try {
    return nlohmann::json::parse(text, check_depth);
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::BadFile, "{}: not valid JSON: {}", origin, e.what());
  }
}

}  // namespace millrace
