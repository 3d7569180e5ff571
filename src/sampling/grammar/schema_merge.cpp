// Both of two schemas: keyword by keyword.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/json_text.h"
#include "sampling/grammar/ebnf.h"
#include "sampling/grammar/regex.h"
#include "sampling/grammar/schema_document.h"
#include "sampling/grammar/string_formats.h"

namespace millrace {
namespace {

bool type_allows(const std::string& type, const Schema& value) {
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
  }
  return (type == "number" && value.is_number()) || (type == "string" && value.is_string()) ||
         (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null()) ||
         (type == "array" && value.is_array()) || (type == "object" && value.is_object());
}

Schema both(const Schema& a, const Schema& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  return {{"allOf", Schema::array({a, b})}};
}

Schema merge_types(const Schema& a, const Schema& b) {
  const auto listed = [](const Schema& type) { return type.is_array() ? type : Schema::array({type}); };
  Schema common = Schema::array();
  for (const Schema& x : listed(a)) {
    for (const Schema& y : listed(b)) {
      if (x == y || (x == "integer" && y == "number")) common.push_back(x);
      if (x == "number" && y == "integer") common.push_back(y);
    }
  }
  return common;
}

Schema merge_values(const Schema& a, const Schema& b) {
  std::set<nlohmann::json> others;  // as validators compare values: whatever the order of an object's members
  for (const Schema& value : b) others.insert(nlohmann::json(value));
  Schema common = Schema::array();
  for (const Schema& value : a) {
    if (others.count(nlohmann::json(value)) > 0) common.push_back(value);
  }
  return common;
}

// What a schema says about members it lists and others. Finds them faster than the schema, which keeps them in order.
class Members {
 public:
  explicit Members(const Schema& object) : others_(object.value("additionalProperties", Schema(true))) {
    const auto properties = object.find("properties");
    if (properties == object.end()) return;
    if (!properties->is_object()) fail(ErrorKind::Usage, "the schema's properties are not an object");
    for (const auto& item : properties->items()) {
      listed_.emplace(item.key(), &item.value());
      keys_.push_back(item.key());
    }
  }

  const std::vector<std::string>& keys() const { return keys_; }
  bool lists(const std::string& key) const { return listed_.count(key) > 0; }
  const Schema& of(const std::string& key) const {
    const auto found = listed_.find(key);
    return found == listed_.end() ? others_ : *found->second;
  }

 private:
  Schema others_;
  std::unordered_map<std::string, const Schema*> listed_;
  std::vector<std::string> keys_;
};

void merge_properties(Schema& merged, const Schema& a, const Schema& b) {
  const auto speaks = [](const Schema& side) {
    return side.contains("properties") || side.contains("patternProperties") || side.contains("additionalProperties");
  };
  if (!speaks(a) || !speaks(b)) {
    const Schema& only = speaks(a) ? a : b;
    for (const char* keyword : {"properties", "additionalProperties"}) {
      if (only.contains(keyword)) merged[keyword] = only[keyword];
    }
    return;
  }
  const bool patterns = a.contains("patternProperties") || b.contains("patternProperties");
  const bool closed = a.contains("additionalProperties") || b.contains("additionalProperties");
  if (patterns && closed)
    fail(ErrorKind::Usage,
         "the schema combines patternProperties and additionalProperties in a way that is not supported");
  const Members of_a(a), of_b(b);
  Schema properties = Schema::object();
  auto& list = properties.get_ref<Schema::object_t&>();
  for (const std::string& key : of_a.keys()) list.emplace_back(key, both(of_a.of(key), of_b.of(key)));
  for (const std::string& key : of_b.keys()) {
    if (!of_a.lists(key)) list.emplace_back(key, both(of_a.of(key), of_b.of(key)));
  }
  if (!properties.empty() || a.contains("properties") || b.contains("properties"))
    merged["properties"] = std::move(properties);
  if (closed)
    merged["additionalProperties"] =
        both(a.value("additionalProperties", Schema(true)), b.value("additionalProperties", Schema(true)));
}

Schema merge_keyword(const std::string& keyword, const Schema& a, const Schema& b) {
  if (a == b) return a;
  const bool numbers = a.is_number() && b.is_number();  // draft 4's exclusive bounds say true or false
  if (numbers && (keyword.starts_with("min") || keyword == "exclusiveMinimum")) return a > b ? a : b;
  if (numbers && (keyword.starts_with("max") || keyword == "exclusiveMaximum")) return a < b ? a : b;
  if (keyword == "type") return merge_types(a, b);
  if (keyword == "enum") return merge_values(a, b);
  if ((keyword == "required" || keyword == "$except") && a.is_array() && b.is_array()) {
    Schema all = a;
    all.insert(all.end(), b.begin(), b.end());
    return all;
  }
  if (keyword == "items" || keyword == "propertyNames") return both(a, b);
  if (keyword == "uniqueItems") return a == true || b == true;
  if (keyword == "multipleOf" && a.is_number_integer() && b.is_number_integer() && a > 0 && b > 0 && a < 100000 &&
      b < 100000) {
    return std::lcm(a.get<int64_t>(), b.get<int64_t>());
  }
  fail(ErrorKind::Usage, "the schema has two different \"{}\" for the same value, which cannot be combined", keyword);
}

struct Limit {
  std::string_view keyword;
  bool (*applies)(const Schema& value);
  double (*measure)(const Schema& value);
  bool (*holds)(double measured, double limit);
};

const Limit* find_limit(std::string_view keyword) {
  constexpr auto is_number = [](const Schema& v) { return v.is_number(); };
  constexpr auto is_string = [](const Schema& v) { return v.is_string(); };
  constexpr auto is_array = [](const Schema& v) { return v.is_array(); };
  constexpr auto is_object = [](const Schema& v) { return v.is_object(); };
  constexpr auto number = [](const Schema& v) { return v.get<double>(); };
  constexpr auto length = [](const Schema& v) {
    return static_cast<double>(code_points(v.get_ref<const std::string&>()).size());
  };
  constexpr auto size = [](const Schema& v) { return static_cast<double>(v.size()); };
  constexpr auto at_least = [](double x, double limit) { return x >= limit; };
  constexpr auto at_most = [](double x, double limit) { return x <= limit; };
  static constexpr Limit kLimits[] = {{"minimum", is_number, number, at_least},
                                      {"maximum", is_number, number, at_most},
                                      {"exclusiveMinimum", is_number, number, [](double x, double y) { return x > y; }},
                                      {"exclusiveMaximum", is_number, number, [](double x, double y) { return x < y; }},
                                      {"minLength", is_string, length, at_least},
                                      {"maxLength", is_string, length, at_most},
                                      {"minItems", is_array, size, at_least},
                                      {"maxItems", is_array, size, at_most},
                                      {"minProperties", is_object, size, at_least},
                                      {"maxProperties", is_object, size, at_most}};
  const auto* found = std::find_if(std::begin(kLimits), std::end(kLimits),
                                   [&](const Limit& limit) { return limit.keyword == keyword; });
  return found == std::end(kLimits) ? nullptr : found;
}

// As validators compare values: whatever the order of an object's members, and 1.0 is 1.
std::set<nlohmann::json> excepted_values(const Schema& schema) {
  const Schema except = schema.value("$except", Schema::array());
  std::set<nlohmann::json> values;
  for (const Schema& one : except) values.insert(nlohmann::json(one));
  return values;
}

// Whether a listed value keeps to what else the schema says. Refuses keywords that would have to be computed.
bool satisfies_all(const Schema& value, const Schema& schema, Ebnf& ebnf) {
  for (const auto& item : schema.items()) {
    const std::string& keyword = item.key();
    if (keyword == "enum" || keyword == "type" || keyword == "$except" || is_annotation(keyword)) continue;
    if ((keyword == "pattern" || keyword == "format") && !value.is_string()) continue;
    if (keyword == "pattern" && item.value().is_string()) {
      if (!regex_matches(item.value().get<std::string>(), value.get<std::string>(), ebnf)) return false;
      continue;
    }
    if (keyword == "format" && item.value().is_string()) {
      const std::string regex = string_format_regex(item.value().get<std::string>(), {});
      if (!regex.empty() && !regex_matches(regex, value.get<std::string>(), ebnf)) return false;
      continue;
    }
    const Limit* limit = find_limit(keyword);
    if (limit == nullptr || !item.value().is_number())
      fail(ErrorKind::Usage, "the schema has enum or const beside \"{}\"; leave that one out", keyword);
    if (limit->applies(value) && !limit->holds(limit->measure(value), item.value().get<double>())) return false;
  }
  return true;
}

// const as a list of one.
Schema with_enum(Schema schema) {
  const auto constant = schema.find("const");
  if (constant == schema.end()) return schema;
  Schema only = Schema::array({*constant});
  schema.erase("const");
  if (schema.contains("enum")) only = merge_values(schema["enum"], only);
  schema["enum"] = std::move(only);
  return schema;
}

}  // namespace

bool is_annotation(const std::string& keyword) {
  for (const char* known :
       {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema",
        "$id", "$anchor", "$defs", "definitions", "nullable", "discriminator", "example"}) {
    if (keyword == known) return true;
  }
  return keyword.starts_with("x-");
}

Schema merge_schemas(const Schema& first, const Schema& second) {
  if (first.empty()) return second;
  if (second.empty()) return first;
  const Schema a = with_enum(first), b = with_enum(second);
  Schema merged = Schema::object();
  for (const Schema* side : {&a, &b}) {
    for (const auto& item : side->items()) {
      const std::string& keyword = item.key();
      if (is_annotation(keyword) || keyword == "properties" || keyword == "additionalProperties" ||
          merged.contains(keyword))
        continue;
      merged[keyword] =
          a.contains(keyword) && b.contains(keyword) ? merge_keyword(keyword, a[keyword], b[keyword]) : item.value();
    }
  }
  merge_properties(merged, a, b);
  const auto nothing = [&](const char* keyword) {
    return merged.contains(keyword) && merged[keyword].is_array() && merged[keyword].empty();
  };
  if (nothing("type") || nothing("enum")) return false;
  return merged;
}

std::vector<std::string> schema_types(const Schema& schema) {
  static const std::vector<std::string> kAll = {"object", "array", "string", "number", "boolean", "null"};
  std::vector<std::string> types;
  if (const auto named = schema.find("type"); named != schema.end()) {
    for (const Schema& type : named->is_array() ? *named : Schema::array({*named})) {
      const bool known = type == "integer" ||
                         std::any_of(kAll.begin(), kAll.end(), [&](const std::string& name) { return type == name; });
      if (!known) fail(ErrorKind::Usage, "the schema has a type that does not exist: {}", json_text(type));
      types.push_back(type);
    }
    return types;
  }
  static const std::pair<const char*, std::vector<const char*>> kFamilies[] = {
      {"object",
       {"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
        "maxProperties"}},
      {"array", {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "additionalItems"}},
      {"string", {"pattern", "format", "minLength", "maxLength"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};
  for (const auto& [type, keywords] : kFamilies) {
    if (std::any_of(keywords.begin(), keywords.end(), [&](const char* keyword) { return schema.contains(keyword); })) {
      types.emplace_back(type);
    }
  }
  return types.empty() ? kAll : types;
}

std::vector<Schema> allowed_values(const Schema& raw, Ebnf& ebnf) {
  const Schema schema = with_enum(raw);
  if (!schema["enum"].is_array() || schema["enum"].empty())
    fail(ErrorKind::Usage, "the schema's enum is not a list of values");
  const std::vector<std::string> types = schema.contains("type") ? schema_types(schema) : std::vector<std::string>{};
  const std::set<nlohmann::json> excepted = excepted_values(schema);
  std::vector<Schema> values;
  for (const Schema& value : schema["enum"]) {
    if (!excepted.empty() && excepted.count(nlohmann::json(value)) > 0) continue;
    const bool typed = types.empty() || std::any_of(types.begin(), types.end(),
                                                    [&](const auto& type) { return type_allows(type, value); });
    if (typed && satisfies_all(value, schema, ebnf)) values.push_back(value);
  }
  return values;
}

}  // namespace millrace
