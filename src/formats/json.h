// JSON from untrusted files: bounded depth, errors that name the file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace millrace {

nlohmann::json parse_json(std::string_view text, const std::string& origin);

}  // namespace millrace
