// Complements of schemas, and conditionals that are built from them, as choices of schemas. A choice may be a subset of
// the complement, never more.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "grammar/schema/schema_document.h"
#include "grammar/schema/schema_keywords.h"
#include "grammar/schema/string_formats.h"

namespace millrace {
namespace {

constexpr int kDeepestNegation = 32;
constexpr int64_t kLargestIndivisible = 64;

JsonSchema any_of(JsonSchema options) {
  if (options.empty()) return false;
  return {{"anyOf", std::move(options)}};
}

JsonSchema object_without(const JsonSchema& key) {
  return {{"type", "object"}, {"properties", {{key.get<std::string>(), false}}}};
}

std::vector<JsonSchema> other_types(const JsonSchema& named) {
  const JsonSchema types = named.is_array() ? named : JsonSchema::array({named});
  const auto taken = [&](const char* type) { return std::find(types.begin(), types.end(), type) != types.end(); };
  JsonSchema others = JsonSchema::array();
  for (const char* type : {"object", "array", "string", "number", "boolean", "null"}) {
    if (!taken(type) && !(taken("integer") && type == std::string_view("number"))) others.push_back(type);
  }
  std::vector<JsonSchema> choice = {JsonSchema{{"type", std::move(others)}}};
  if (taken("integer") && !taken("number")) choice.push_back({{"type", "number"}, {"$fraction", true}});
  return choice;
}

// The complement of an enum. For numbers, the intervals between the listed ones.
std::vector<JsonSchema> other_values(const JsonSchema& listed) {
  std::vector<JsonSchema> numbers;
  for (const JsonSchema& value : listed) {
    if (value.is_number()) numbers.push_back(value);
  }
  if (numbers.empty()) return {JsonSchema{{"$except", listed}}};
  std::sort(numbers.begin(), numbers.end(),
            [](const JsonSchema& a, const JsonSchema& b) { return a.get<long double>() < b.get<long double>(); });
  const JsonSchema rest = JsonSchema::array({"object", "array", "string", "boolean", "null"});
  std::vector<JsonSchema> choice = {JsonSchema{{"type", rest}, {"$except", listed}},
                                    JsonSchema{{"type", "number"}, {"exclusiveMaximum", numbers.front()}},
                                    JsonSchema{{"type", "number"}, {"exclusiveMinimum", numbers.back()}}};
  for (size_t i = 1; i < numbers.size(); ++i) {
    choice.push_back({{"type", "number"}, {"exclusiveMinimum", numbers[i - 1]}, {"exclusiveMaximum", numbers[i]}});
  }
  return choice;
}

// The complement of a schema. An enum becomes $except at once, so that contradictions show early.
JsonSchema not_this(const JsonSchema& schema) {
  if (schema.is_object() && schema.size() == 1) {
    const JsonSchema listed =
        schema.contains("const") ? JsonSchema::array({schema["const"]}) : schema.value("enum", JsonSchema());
    const bool texts =
        listed.is_array() && !listed.empty() &&
        std::none_of(listed.begin(), listed.end(), [](const JsonSchema& one) { return one.is_number(); });
    if (texts) return {{"$except", listed}};
  }
  return {{"not", schema}};
}

// Numbers that an integer does not divide.
std::optional<std::vector<JsonSchema>> indivisible(const JsonSchema& divisor) {
  if (!divisor.is_number() || !(divisor >= 1 && divisor <= kLargestIndivisible) ||
      divisor.get<double>() != static_cast<double>(divisor.get<int64_t>()))
    return {};
  const JsonSchema fraction = {{"type", "number"}, {"$fraction", true}};
  if (divisor == 1) return std::vector<JsonSchema>{fraction};
  const JsonSchema whole = {{"type", "integer"}, {"$indivisible", JsonSchema::array({divisor.get<int64_t>()})}};
  return std::vector<JsonSchema>{whole, fraction};
}

// Bounds and their opposites: type, keyword, and the distance of the opposite bound.
struct Opposite {
  std::string_view keyword;
  const char* type;
  const char* opposite;
  int step;
};

constexpr Opposite kOpposites[] = {{"minimum", "number", "exclusiveMaximum", 0},
                                   {"maximum", "number", "exclusiveMinimum", 0},
                                   {"exclusiveMinimum", "number", "maximum", 0},
                                   {"exclusiveMaximum", "number", "minimum", 0},
                                   {"minLength", "string", "maxLength", -1},
                                   {"maxLength", "string", "minLength", 1},
                                   {"minItems", "array", "maxItems", -1},
                                   {"maxItems", "array", "minItems", 1},
                                   {"minProperties", "object", "maxProperties", -1},
                                   {"maxProperties", "object", "minProperties", 1}};

}  // namespace

std::optional<std::vector<JsonSchema>> negated_keyword(const std::string& keyword, const JsonSchema& value) {
  using Choice = std::vector<JsonSchema>;
  for (const Opposite& bound : kOpposites) {
    if (keyword != bound.keyword) continue;
    if (!value.is_number()) return {};  // exclusive bounds of draft 4
    if (bound.step == 0) return Choice{{{"type", bound.type}, {bound.opposite, value}}};
    const double count = value.get<double>();
    if (!(count >= 0 && count < 1e9)) return {};
    const auto turned = static_cast<int64_t>(count) + bound.step;
    return turned < 0 ? Choice{} : Choice{{{"type", bound.type}, {bound.opposite, turned}}};
  }
  if (keyword == "type") return other_types(value);
  if (keyword == "const") return other_values(JsonSchema::array({value}));
  if (keyword == "enum" && value.is_array()) return other_values(value);
  if (keyword == "pattern" && value.is_string())
    return Choice{{{"type", "string"}, {"$avoid", JsonSchema::array({value})}}};
  if (keyword == "format" && value.is_string()) {
    const std::string_view loose = loose_format_regex(value.get_ref<const std::string&>());
    if (loose.empty()) return {};
    return Choice{{{"type", "string"}, {"$avoid", JsonSchema::array({loose})}}};
  }
  if (keyword == "multipleOf") return indivisible(value);
  if (keyword == "contains") return Choice{{{"type", "array"}, {"items", not_this(value)}}};
  if (keyword == "items" && !value.is_array()) return Choice{{{"type", "array"}, {"contains", not_this(value)}}};
  Choice choice;
  if (keyword == "required" && value.is_array()) {
    for (const JsonSchema& key : value) {
      if (!key.is_string()) return {};
      choice.push_back(object_without(key));
    }
    return choice;
  }
  if (keyword == "properties" && value.is_object()) {
    for (const auto& item : value.items()) {
      choice.push_back({{"type", "object"},
                        {"required", JsonSchema::array({item.key()})},
                        {"properties", {{item.key(), not_this(item.value())}}}});
    }
    return choice;
  }
  return {};
}

JsonSchema SchemaDocument::negation(const JsonSchema& schema, int depth) const {
  if (depth > kDeepestNegation) fail(ErrorKind::Usage, "the schema's negations go in a circle or too deep");
  spend(schema);
  if (counts_evaluated_)
    fail(ErrorKind::Usage,
         "the schema has \"not\", \"if\" or a oneOf beside unevaluatedProperties or "
         "unevaluatedItems, which cannot be enforced");
  if (schema == false) return true;
  if (!schema.is_object()) return false;
  if (const auto reference = schema.find("$ref");
      reference_is_all_ && reference != schema.end() && reference->is_string())
    return negation(resolve(reference->get<std::string>()), depth + 1);
  JsonSchema options = JsonSchema::array();
  const auto all = [&](const JsonSchema& list) {
    JsonSchema parts = JsonSchema::array();
    for (const JsonSchema& one : list) parts.push_back(negation(one, depth + 1));
    return parts;
  };
  for (const auto& item : schema.items()) {
    const std::string& keyword = item.key();
    const JsonSchema& value = item.value();
    if (is_annotation(keyword)) continue;
    if (keyword == "$ref" && value.is_string()) {
      options.push_back(negation(resolve(value.get<std::string>()), depth + 1));
    } else if (keyword == "not") {
      options.push_back(value);
    } else if (keyword == "allOf" && value.is_array()) {
      for (JsonSchema& one : all(value)) options.push_back(std::move(one));
    } else if ((keyword == "anyOf" || keyword == "oneOf") && value.is_array()) {
      options.push_back({{"allOf", all(value)}});
    } else {
      std::optional<std::vector<JsonSchema>> choice = negated_keyword(keyword, value);
      if (!choice)
        fail(ErrorKind::Usage,
             "the schema says what must not match \"{}\" (by not, if, or a oneOf whose options overlap), which cannot "
             "be "
             "enforced; options of a oneOf are told apart by a required property with its own const",
             keyword);
      for (JsonSchema& one : *choice) options.push_back(std::move(one));
    }
  }
  return any_of(std::move(options));
}

// if, then, else and the dependency keywords, each as a choice.
std::vector<JsonSchema> SchemaDocument::conditions(const JsonSchema& schema) const {
  std::vector<JsonSchema> result;
  if (schema.contains("if") && (schema.contains("then") || schema.contains("else"))) {
    const JsonSchema& test = schema["if"];
    const JsonSchema fails = {{"not", test}};
    result.push_back(
        any_of(JsonSchema::array({{{"allOf", JsonSchema::array({test, schema.value("then", JsonSchema(true))})}},
                                  {{"allOf", JsonSchema::array({fails, schema.value("else", JsonSchema(true))})}}})));
  }
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) continue;
    if (!found->is_object()) fail(ErrorKind::Usage, "the schema's {} is not an object", keyword);
    for (const auto& item : found->items()) {
      JsonSchema needs = item.value();
      if (needs.is_array()) needs = {{"required", std::move(needs)}};
      const JsonSchema with = {
          {"allOf", JsonSchema::array({{{"required", JsonSchema::array({item.key()})}}, std::move(needs)})}};
      const JsonSchema without = {{"properties", {{item.key(), false}}}};
      result.push_back(any_of(JsonSchema::array({with, without})));
    }
  }
  return result;
}

bool has_combinator(const JsonSchema& schema) {
  for (const char* keyword :
       {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "dependencies"}) {
    if (schema.contains(keyword)) return true;
  }
  return false;
}

}  // namespace millrace
