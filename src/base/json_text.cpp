#include "base/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace millrace {
namespace {

constexpr int kDeepest = 1000;  // nlohmann copies and writes JSON recursively, one call per level

template <class Json>
Json read(std::string_view text, bool ignore_comments = false) {
  bool too_deep = false;
  const auto check_depth = [&](int depth, typename Json::parse_event_t, Json&) {
    too_deep |= depth > kDeepest;
    return !too_deep;
  };
  Json json = Json::parse(text, check_depth, /*allow_exceptions=*/false, ignore_comments);
  return too_deep ? Json(Json::value_t::discarded) : json;
}

}  // namespace

nlohmann::json read_json(std::string_view text) { return read<nlohmann::json>(text); }

nlohmann::json read_json_with_comments(std::string_view text) {
  return read<nlohmann::json>(text, /*ignore_comments=*/true);
}

nlohmann::ordered_json read_ordered_json(std::string_view text) { return read<nlohmann::ordered_json>(text); }

std::string json_text(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void append_json_string(std::string_view text, std::string& to) {
  const auto is_plain = [](char c) { return c >= ' ' && c < '\x7f' && c != '"' && c != '\\'; };
  if (std::all_of(text.begin(), text.end(), is_plain)) {
    to.append(1, '"').append(text).append(1, '"');
  } else {
    to += json_text(nlohmann::json(text));
  }
}

}  // namespace millrace
