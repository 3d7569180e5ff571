// JSON from clients, read with bounds: depth, names in an object and in all. Order is kept, as templates see it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace millrace {

using Json = nlohmann::ordered_json;

struct JsonBounds {
  int depth = 128;
  size_t names_in_object = 2000;  // they are searched one by one
  size_t names = 200000;
};

// Throws ApiError 400 that says where the text stops being JSON.
Json parse_json(std::string_view text, const JsonBounds& bounds = {});

// Bytes that are no UTF-8 become replacement characters.
std::string to_text(const Json& json);

}  // namespace millrace
