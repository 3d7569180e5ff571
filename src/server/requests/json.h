// JSON from clients, with limits on depth and on the number of names per object and in total. Keeps the order of names,
// which chat templates see.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace millrace {

using Json = nlohmann::ordered_json;

struct JsonBounds {
  int depth = 128;
  size_t names_in_object = 2000;  // lookup in an object is linear
  size_t names = 200000;
};

// Throws ApiError 400 with the position of the first error.
Json parse_json(std::string_view text, const JsonBounds& bounds = {});

// Bytes that are not UTF-8 become replacement characters.
std::string to_text(const Json& json);

}  // namespace millrace
