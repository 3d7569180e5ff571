#include "grammar/schema/schema_values.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "base/error.h"
#include "grammar/pattern/regex.h"
#include "grammar/pattern/text_rules.h"
#include "grammar/rules.h"
#include "grammar/schema/schema_fields.h"
#include "grammar/schema/schema_keywords.h"
#include "grammar/schema/string_formats.h"

namespace millrace {
namespace {

bool type_allows(const std::string& type, const JsonSchema& value) {
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
  }
  return (type == "number" && value.is_number()) || (type == "string" && value.is_string()) ||
         (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null()) ||
         (type == "array" && value.is_array()) || (type == "object" && value.is_object());
}

// long double represents every 64-bit integer.
struct Limit {
  std::string_view keyword;
  long double (*measure)(const JsonSchema& value);
  bool (*holds)(long double measured, long double limit);
};

const Limit* find_limit(std::string_view keyword) {
  using Number = long double;
  constexpr auto number = [](const JsonSchema& v) { return v.get<Number>(); };
  constexpr auto length = [](const JsonSchema& v) {
    return static_cast<Number>(code_points(v.get_ref<const std::string&>()).size());
  };
  constexpr auto size = [](const JsonSchema& v) { return static_cast<Number>(v.size()); };
  constexpr auto at_least = [](Number x, Number limit) { return x >= limit; };
  constexpr auto at_most = [](Number x, Number limit) { return x <= limit; };
  static constexpr Limit kLimits[] = {{"minimum", number, at_least},
                                      {"maximum", number, at_most},
                                      {"exclusiveMinimum", number, [](Number x, Number y) { return x > y; }},
                                      {"exclusiveMaximum", number, [](Number x, Number y) { return x < y; }},
                                      {"minLength", length, at_least},
                                      {"maxLength", length, at_most},
                                      {"minItems", size, at_least},
                                      {"maxItems", size, at_most},
                                      {"minProperties", size, at_least},
                                      {"maxProperties", size, at_most}};
  const auto* found = std::find_if(std::begin(kLimits), std::end(kLimits),
                                   [&](const Limit& limit) { return limit.keyword == keyword; });
  return found == std::end(kLimits) ? nullptr : found;
}

// nlohmann::json compares like validators: the order of members is ignored, and 1.0 equals 1.
std::set<nlohmann::json> excepted_values(const JsonSchema& schema) {
  const JsonSchema except = schema.value("$except", JsonSchema::array());
  std::set<nlohmann::json> values;
  for (const JsonSchema& one : except) values.insert(nlohmann::json(one));
  return values;
}

bool text_satisfies(const std::string& text, const std::string& keyword, const JsonSchema& said, RuleBuilder& builder) {
  const std::vector<std::string> all = texts_of({{keyword, said}}, keyword.c_str());
  return std::all_of(all.begin(), all.end(), [&](const std::string& one) {
    if (keyword == "$avoid") return text_follows({.avoided = {one}}, text, builder);
    const std::string regex = keyword == "pattern" ? one : string_format_regex(one, {});
    return (keyword == "format" && regex.empty()) || regex_matches(regex, text, builder);
  });
}

// Divides doubles, like validators.
bool is_multiple(double value, double step) {
  const double quotient = value / step;
  return step > 0 && std::isfinite(quotient) && quotient == std::floor(quotient);
}

// Whether a listed value satisfies the other keywords. Throws Usage for keywords that need a full validator.
bool satisfies_all(const JsonSchema& value, const JsonSchema& schema, RuleBuilder& builder) {
  const std::string_view type = value.is_number() ? "number" : value.type_name();
  for (const auto& item : schema.items()) {
    const std::string& keyword = item.key();
    if (keyword == "enum" || keyword == "type" || keyword == "$except" || is_annotation(keyword)) continue;
    if (const std::string_view about = type_spoken_of(keyword); !about.empty() && about != type) continue;
    if (keyword == "pattern" || keyword == "$avoid" || keyword == "format") {
      if (!text_satisfies(value.get<std::string>(), keyword, item.value(), builder)) return false;
      continue;
    }
    if (keyword == "$fraction") {
      if (type_allows("integer", value)) return false;
      continue;
    }
    if (keyword == "multipleOf" && item.value().is_number()) {
      if (!is_multiple(value.get<double>(), item.value().get<double>())) return false;
      continue;
    }
    if (keyword == "$indivisible") {
      const auto divides = [&](const JsonSchema& divisor) {
        return is_multiple(value.get<double>(), divisor.get<double>());
      };
      if (std::any_of(item.value().begin(), item.value().end(), divides)) return false;
      continue;
    }
    const Limit* limit = find_limit(keyword);
    if (limit == nullptr || !item.value().is_number())
      fail(ErrorKind::Usage, "the schema has enum or const beside \"{}\"; leave that one out", keyword);
    if (!limit->holds(limit->measure(value), item.value().get<long double>())) return false;
  }
  return true;
}

}  // namespace

JsonSchema common_values(const JsonSchema& a, const JsonSchema& b) {
  std::set<nlohmann::json> others;  // the order of members is ignored, as in validators
  for (const JsonSchema& value : b) others.insert(nlohmann::json(value));
  JsonSchema common = JsonSchema::array();
  for (const JsonSchema& value : a) {
    if (others.count(nlohmann::json(value)) > 0) common.push_back(value);
  }
  return common;
}

JsonSchema with_enum(JsonSchema schema) {
  const auto constant = schema.find("const");
  if (constant == schema.end()) return schema;
  JsonSchema only = JsonSchema::array({*constant});
  schema.erase("const");
  if (schema.contains("enum")) only = common_values(schema["enum"], only);
  schema["enum"] = std::move(only);
  return schema;
}

JsonSchema without_excepted(JsonSchema schema) {
  if (!schema.is_object() || !schema.contains("$except") || !schema.contains("enum")) return schema;
  const std::set<nlohmann::json> excepted = excepted_values(schema);
  JsonSchema left = JsonSchema::array();
  for (const JsonSchema& value : schema["enum"]) {
    if (excepted.count(nlohmann::json(value)) == 0) left.push_back(value);
  }
  if (left.empty()) return false;
  schema["enum"] = std::move(left);
  schema.erase("$except");
  return schema;
}

std::vector<JsonSchema> allowed_values(const JsonSchema& raw, RuleBuilder& builder) {
  const JsonSchema schema = with_enum(raw);
  if (!schema["enum"].is_array() || schema["enum"].empty())
    fail(ErrorKind::Usage, "the schema's enum is not a list of values");
  const std::vector<std::string> types = schema.contains("type") ? schema_types(schema) : std::vector<std::string>{};
  const std::set<nlohmann::json> excepted = excepted_values(schema);
  std::vector<JsonSchema> values;
  for (const JsonSchema& value : schema["enum"]) {
    if (!excepted.empty() && excepted.count(nlohmann::json(value)) > 0) continue;
    const bool typed = types.empty() || std::any_of(types.begin(), types.end(),
                                                    [&](const auto& type) { return type_allows(type, value); });
    if (typed && satisfies_all(value, schema, builder)) values.push_back(value);
  }
  return values;
}

}  // namespace millrace
