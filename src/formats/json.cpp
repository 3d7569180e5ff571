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
    const std::string_view message = e.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    fail(ErrorKind::BadFile, "{}: not valid JSON: {}", origin, message.substr(message.find(']') + 2));
  }
}

}  // namespace millrace
