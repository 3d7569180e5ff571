#include "text/jinja/value/json_value.h"

#include <nlohmann/json.hpp>

#include "text/jinja/template_error.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

// Leaves room for containers that templates put around their input.
constexpr int kMaxJsonDepth = kMaxValueDepth - 20;

Value text_from(const std::string& text, bool content) {
  if (!is_valid_utf8(text)) fail_template("a text in the input is not valid UTF-8");
  return Value::text(text, content && !text.empty() ? ContentRanges{{0, text.size()}} : ContentRanges());
}

Value convert(const nlohmann::ordered_json& json, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > kMaxJsonDepth) fail_template("the input is nested deeper than {} levels", kMaxJsonDepth);
  switch (json.type()) {
    case Type::null:
      return {};
    case Type::boolean:
      return Value::boolean(json.get<bool>());
    case Type::number_integer:
      return Value::integer(json.get<int64_t>());
    case Type::number_unsigned:
      return Value::integer(json.get<uint64_t>());
    case Type::number_float:
      return Value::real(json.get<double>());
    case Type::string:
      return text_from(json.get_ref<const std::string&>(), /*content=*/true);
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item, depth + 1));
      return Value::list(std::move(items));
    }
    case Type::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, item] : json.items())
        dict->set(text_from(key, /*content=*/true), convert(item, depth + 1));
      return Value::dict(dict);
    }
    default:
      fail_template("the input holds binary data");
  }
}

}  // namespace

Value value_from_json(const nlohmann::ordered_json& json, const nlohmann::ordered_json& own) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, item] : json.items()) {
    const auto found = own.find(key);
    const bool is_own = item.is_string() && found != own.end() && *found == item;
    dict->set(text_from(key, /*content=*/false),
              is_own ? text_from(item.get_ref<const std::string&>(), /*content=*/false) : convert(item, 1));
  }
  return Value::dict(dict);
}

}  // namespace millrace::jinja
