#include "server/requests/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/nearest.h"
#include "server/requests/api_error.h"
#include "text/unicode/utf8.h"

namespace millrace {

enum class SchemaType { Any, Null, Boolean, Integer, Number, String, Array, Object, Map, AnyOf };

namespace {

using Type = SchemaType;
constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

const char* type_name(Type type) {
  switch (type) {
    case Type::Null:
      return "null";
    case Type::Boolean:
      return "boolean";
    case Type::Integer:
      return "integer";
    case Type::Number:
      return "number";
    case Type::String:
      return "string";
    case Type::Array:
      return "array";
    case Type::Object:
    case Type::Map:
      return "object";
    default:
      return "value";
  }
}

// As in JSON Schema, 2.0 is an integer.
bool is_integer(const Json& value) {
  if (value.is_number_integer()) return true;
  return value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>() &&
         std::abs(value.get<double>()) < 0x1p53;
}

// An integer beyond 64 bits, as the parser gives it.
bool is_huge_integer(const Json& value) {
  constexpr double kFirst = 9223372036854775808.0;  // 2^63
  return value.is_number_float() && std::abs(value.get<double>()) >= kFirst;
}

bool is_of(Type type, const Json& value) {
  switch (type) {
    case Type::Null:
      return value.is_null();
    case Type::Boolean:
      return value.is_boolean();
    case Type::Integer:
      return is_integer(value) || is_huge_integer(value);
    case Type::Number:
      return value.is_number();
    case Type::String:
      return value.is_string();
    case Type::Array:
      return value.is_array();
    case Type::Object:
    case Type::Map:
      return value.is_object();
    default:
      return true;
  }
}

std::string join(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

std::string where(const std::string& path) { return path.empty() ? "the body" : "'" + path + "'"; }

}  // namespace

struct Schema::Node {
  SchemaType type = SchemaType::Any;
  int64_t least_integer = 0, most_integer = 0;
  double least_number = 0, most_number = 0;
  size_t least_size = 0, most_size = kNoLimit;
  std::vector<std::string> words;
  std::vector<Schema> forms;  // of AnyOf; the items of an array; the values of a map
  std::vector<Property> properties;
  Others others = Others::Refused;
  std::string description;
  Json fallback, example;  // null: none
};

Schema::Schema(Node node) : node_(std::make_shared<const Node>(std::move(node))) {}

Schema Schema::any() { return Schema(Node{}); }
Schema Schema::null() { return Schema(Node{.type = Type::Null}); }
Schema Schema::boolean() { return Schema(Node{.type = Type::Boolean}); }

Schema Schema::integer(int64_t least, int64_t most) {
  return Schema(Node{.type = Type::Integer, .least_integer = least, .most_integer = most});
}

Schema Schema::number(double least, double most) {
  return Schema(Node{.type = Type::Number, .least_number = least, .most_number = most});
}

Schema Schema::string(size_t least, size_t most) {
  return Schema(Node{.type = Type::String, .least_size = least, .most_size = most});
}

Schema Schema::word(std::vector<std::string> words) {
  return Schema(Node{.type = Type::String, .words = std::move(words)});
}

Schema Schema::array(Schema items, size_t least, size_t most) {
  return Schema(Node{.type = Type::Array, .least_size = least, .most_size = most, .forms = {std::move(items)}});
}

Schema Schema::object(std::vector<Property> properties, Others others) {
  return Schema(Node{.type = Type::Object, .properties = std::move(properties), .others = others});
}

Schema Schema::map(Schema values) { return Schema(Node{.type = Type::Map, .forms = {std::move(values)}}); }

Schema Schema::any_of(std::vector<Schema> forms) {
  return Schema(Node{.type = Type::AnyOf, .forms = std::move(forms)});
}

Schema Schema::or_null() const {
  if (node_->type == Type::Any || node_->type == Type::Null) return *this;
  if (node_->type != Type::AnyOf) return any_of({*this, null()});
  Node node = *node_;
  node.forms.push_back(null());
  return Schema(std::move(node));
}

Schema Schema::about(std::string description) const {
  Node node = *node_;
  node.description = std::move(description);
  return Schema(std::move(node));
}

Schema Schema::unless_given(Json value) const {
  Node node = *node_;
  node.fallback = std::move(value);
  return Schema(std::move(node));
}

Schema Schema::example(Json value) const {
  Node node = *node_;
  node.example = std::move(value);
  return Schema(std::move(node));
}

// The field may only be null or empty. Its description may say what to do instead.
void Schema::refuse_unsupported(const std::string& path) const {
  const bool explained = node_->description.starts_with("not supported");
  fail_field(path, "unsupported_value", "{} is {}", where(path), explained ? node_->description : "not supported");
}

void Schema::check(const Json& value, const std::string& path) const {
  if (node_->type == Type::AnyOf) return check_forms(value, path);
  if (node_->type == Type::Null && !value.is_null()) refuse_unsupported(path);
  if (!is_of(node_->type, value)) {
    fail_field(path, "invalid_type", "{} must be of type {}, but is of type {}", where(path), type_name(node_->type),
               value.type_name());
  }
  check_bounds(value, path);
  if (node_->type == Type::Object) check_object(value, path);
  if (node_->type == Type::Array) {
    for (size_t i = 0; i < value.size(); ++i) node_->forms[0].check(value[i], fmt::format("{}[{}]", path, i));
  }
  if (node_->type == Type::Map) {
    for (const auto& [name, one] : value.items()) node_->forms[0].check(one, join(path, name));
  }
}

namespace {

// Names a `type` that the server lacks, such as image_url. Other values are the client's text, which is not logged.
std::string unsupported(const std::string& path, const std::string& value) {
  constexpr std::string_view kNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  const bool named = value.size() <= 40 && !value.empty() && value.find_first_not_of(kNames) == std::string::npos;
  return path.ends_with(".type") && named ? fmt::format("; '{}' is not supported", value) : "";
}

}  // namespace

void Schema::check_bounds(const Json& value, const std::string& path) const {
  const Node& n = *node_;
  const auto refuse = [&](const char* code, const std::string& rule) {
    fail_field(path, code, "{} must be {}", where(path), rule);
  };
  if (n.type == Type::Integer) {
    const bool huge = is_huge_integer(value);
    const bool beyond =
        huge ? value.get<double>() > 0 : value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX);
    if (beyond || (!huge && value.get<int64_t>() > n.most_integer)) {
      refuse("integer_above_max_value", fmt::format("at most {}", n.most_integer));
    }
    if (huge || value.get<int64_t>() < n.least_integer) {
      refuse("integer_below_min_value", fmt::format("at least {}", n.least_integer));
    }
  } else if (n.type == Type::Number) {
    if (value.get<double>() > n.most_number)
      refuse("decimal_above_max_value", fmt::format("at most {}", n.most_number));
    if (value.get<double>() < n.least_number) {
      refuse("decimal_below_min_value", fmt::format("at least {}", n.least_number));
    }
  } else if (n.type == Type::String && !n.words.empty()) {
    const auto& text = value.get_ref<const std::string&>();
    if (std::find(n.words.begin(), n.words.end(), text) == n.words.end()) {
      std::vector<std::string> named = n.words;
      std::erase(named, "");
      refuse("invalid_value", fmt::format("one of: {}{}", fmt::join(named, ", "), unsupported(path, text)));
    }
  } else if ((n.type == Type::String || n.type == Type::Array) && n.most_size == 0) {
    const bool empty = n.type == Type::Array ? value.empty() : value.get_ref<const std::string&>().empty();
    if (!empty) refuse_unsupported(path);
  } else if (n.type == Type::String || n.type == Type::Array) {
    const size_t size = n.type == Type::Array ? value.size()
                        : n.least_size == 0 && n.most_size == kNoLimit
                            ? 0
                            : count_characters(value.get_ref<const std::string&>());
    const auto limit = [&](const char* which, size_t count) {
      const char* unit = n.type == Type::Array ? "item" : "character";
      fail_field(path, "invalid_value", "{} must have at {} {} {}{}", where(path), which, count, unit,
                 count == 1 ? "" : "s");
    };
    if (size > n.most_size) limit("most", n.most_size);
    if (size < n.least_size) limit("least", n.least_size);
  }
}

void Schema::check_object(const Json& value, const std::string& path) const {
  for (const Property& property : node_->properties) {
    const auto found = value.find(property.name);
    if (found != value.end()) {
      property.schema.check(*found, join(path, property.name));
    } else if (property.required) {
      fail_field(join(path, property.name), "missing_required_parameter", "'{}' is required",
                 join(path, property.name));
    }
  }
  if (node_->others == Others::Allowed) return;
  for (const auto& [name, ignored] : value.items()) {
    const auto is_it = [&, &wanted = name](const Property& p) { return p.name == wanted; };
    if (std::any_of(node_->properties.begin(), node_->properties.end(), is_it)) continue;
    std::vector<std::string> known;
    for (const Property& property : node_->properties) known.push_back(property.name);
    const std::string hint = did_you_mean(name, known);
    fail_field(join(path, name), "unknown_parameter", "'{}' is not a field that this server knows{}{}",
               join(path, name), hint.empty() ? "" : "; ", hint);
  }
}

// Throws the error of the closest form: one whose discriminating words match, whose list begins with the right type,
// and whose error is deepest in the value. Of equals, a value of the right type is closer.
void Schema::check_forms(const Json& value, const std::string& path) const {
  std::optional<ApiError> nearest;
  std::tuple<int, bool, size_t, bool> nearness;
  std::vector<std::string> types;
  for (const Schema& form : node_->forms) {
    const std::string type = type_name(form.node_->type);
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    try {
      return form.check(value, path);
    } catch (const ApiError& e) {
      const bool right_type = form.node_->type == Type::AnyOf || is_of(form.node_->type, value);
      const ApiProblem& problem = e.problem();
      const std::tuple near(form.words_in(value), form.begins_like(value), problem.param.size(),
                            problem.code != "invalid_type");
      if (!right_type || (nearest && near <= nearness)) continue;
      nearest = e;
      nearness = near;
    }
  }
  if (nearest && std::get<0>(nearness) < 0) check_words_of_forms(value, path);
  if (nearest) throw *nearest;
  fail_field(path, "invalid_type", "{} must be of type {}, but is of type {}", where(path), fmt::join(types, " or "),
             value.type_name());
}

// The words that a value may be, if it may be nothing else but null.
std::vector<std::string> Schema::words() const {
  if (node_->type != Type::AnyOf) return node_->words;
  std::vector<std::string> all;
  for (const Schema& form : node_->forms) {
    if (form.node_->type == Type::Null) continue;
    if (form.node_->words.empty()) return {};
    all.insert(all.end(), form.node_->words.begin(), form.node_->words.end());
  }
  return all;
}

// Forms of objects differ in words, such as a type or a role. The number of those that match; -1: another one is there.
int Schema::words_in(const Json& value) const {
  int count = 0;
  for (const Property& property : node_->properties) {
    const std::vector<std::string> words = property.schema.words();
    if (words.empty() || !value.contains(property.name) || value[property.name].is_null()) continue;
    const auto is = [&](const std::string& word) { return value[property.name] == word; };
    if (std::none_of(words.begin(), words.end(), is)) return -1;
    ++count;
  }
  return count;
}

bool Schema::begins_like(const Json& value) const {
  if (node_->type != Type::Array || !value.is_array() || value.empty()) return true;
  const Node& item = *node_->forms[0].node_;
  if (item.type != Type::AnyOf) return is_of(item.type, value[0]);
  return std::any_of(item.forms.begin(), item.forms.end(),
                     [&](const Schema& form) { return is_of(form.node_->type, value[0]); });
}

// No form's words match: the error lists all accepted words.
void Schema::check_words_of_forms(const Json& value, const std::string& path) const {
  std::map<std::string, std::vector<std::string>> words;  // by the name of a property that some form requires
  for (const bool required : {true, false}) {
    for (const Schema& form : node_->forms) {
      for (const Property& property : form.node_->properties) {
        const std::vector<std::string> own = property.schema.words();
        if (own.empty() || property.required != required || (!required && !words.contains(property.name))) continue;
        std::vector<std::string>& all = words[property.name];
        all.insert(all.end(), own.begin(), own.end());
      }
    }
  }
  for (const auto& [name, all] : words) {
    if (value.contains(name)) word(all).check(value[name], join(path, name));
  }
}

Json Schema::document() const {
  const Node& n = *node_;
  Json json = Json::object();
  if (n.type == Type::AnyOf) {
    json["anyOf"] = Json::array();
    for (const Schema& form : n.forms) json["anyOf"].push_back(form.document());
  } else if (n.type != Type::Any) {
    json["type"] = type_name(n.type);
  }
  if (!n.words.empty()) json["enum"] = n.words;
  if (n.type == Type::Integer) {
    json["minimum"] = n.least_integer;
    json["maximum"] = n.most_integer;
  }
  if (n.type == Type::Number) {
    if (std::isfinite(n.least_number)) json["minimum"] = n.least_number;
    if (std::isfinite(n.most_number)) json["maximum"] = n.most_number;
  }
  const bool is_array = n.type == Type::Array;
  if (n.least_size > 0) json[is_array ? "minItems" : "minLength"] = n.least_size;
  if (n.most_size < kNoLimit) json[is_array ? "maxItems" : "maxLength"] = n.most_size;
  if (is_array) json["items"] = n.forms[0].document();
  if (n.type == Type::Map) json["additionalProperties"] = n.forms[0].document();
  if (n.type == Type::Object) {
    json["properties"] = Json::object();
    Json required = Json::array();
    for (const Property& property : n.properties) {
      json["properties"][property.name] = property.schema.document();
      if (property.required) required.push_back(property.name);
    }
    if (!required.empty()) json["required"] = required;
    json["additionalProperties"] = n.others == Others::Allowed;
  }
  if (!n.description.empty()) json["description"] = n.description;
  if (!n.fallback.is_null()) json["default"] = n.fallback;
  if (!n.example.is_null()) json["examples"] = Json::array({n.example});
  return json;
}

}  // namespace millrace
