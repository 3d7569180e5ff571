#include "text/jinja/value/json_value.h"

#include <nlohmann/json.hpp>

#include "text/jinja/template_error.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

// Leaves room for containers that templates put around their input.
constexpr int kMaxJsonDepth = kMaxValueDepth - 20;

std::string checked_text(const std::string& text) {
  if (!is_valid_utf8(text)) fail_template("a text in the input is not valid UTF-8");
  return text;
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
      return Value::string(checked_text(json.get_ref<const std::string&>()));
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item, depth + 1));
      return Value::list(std::move(items));
    }
    case Type::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, item] : json.items())
        dict->set(Value::string(checked_text(key)), convert(item, depth + 1));
      return Value::dict(dict);
    }
    default:
      fail_template("the input holds binary data");
  }
}

}  // namespace

Value value_from_json(const nlohmann::ordered_json& json) { return convert(json, 0); }

}  // namespace millrace::jinja
