#include "grammar/schema/schema_keywords.h"

#include <map>
#include <set>

#include "base/error.h"
#include "base/json_text.h"

namespace millrace {

// All other keywords have no effect on validity.
bool is_annotation(const std::string& keyword) {
  static const std::set<std::string_view> kSpeaking = {"type",
                                                       "enum",
                                                       "const",
                                                       "properties",
                                                       "required",
                                                       "additionalProperties",
                                                       "patternProperties",
                                                       "propertyNames",
                                                       "minProperties",
                                                       "maxProperties",
                                                       "items",
                                                       "prefixItems",
                                                       "additionalItems",
                                                       "minItems",
                                                       "maxItems",
                                                       "uniqueItems",
                                                       "contains",
                                                       "minContains",
                                                       "maxContains",
                                                       "unevaluatedItems",
                                                       "unevaluatedProperties",
                                                       "pattern",
                                                       "format",
                                                       "minLength",
                                                       "maxLength",
                                                       "minimum",
                                                       "maximum",
                                                       "exclusiveMinimum",
                                                       "exclusiveMaximum",
                                                       "multipleOf",
                                                       "$ref",
                                                       "$dynamicRef",
                                                       "$recursiveRef",
                                                       "allOf",
                                                       "anyOf",
                                                       "oneOf",
                                                       "not",
                                                       "if",
                                                       "then",
                                                       "else",
                                                       "dependentRequired",
                                                       "dependentSchemas",
                                                       "dependencies",
                                                       "$except",
                                                       "$avoid",
                                                       "$fraction",
                                                       "$contains",
                                                       "$indivisible"};
  return kSpeaking.count(keyword) == 0;
}

std::string_view type_spoken_of(const std::string& keyword) {
  static const std::map<std::string_view, std::string_view> kTypes = {
      {"properties", "object"},        {"required", "object"},      {"additionalProperties", "object"},
      {"patternProperties", "object"}, {"propertyNames", "object"}, {"minProperties", "object"},
      {"maxProperties", "object"},     {"items", "array"},          {"prefixItems", "array"},
      {"minItems", "array"},           {"maxItems", "array"},       {"uniqueItems", "array"},
      {"additionalItems", "array"},    {"contains", "array"},       {"minContains", "array"},
      {"maxContains", "array"},        {"pattern", "string"},       {"format", "string"},
      {"minLength", "string"},         {"maxLength", "string"},     {"$avoid", "string"},
      {"minimum", "number"},           {"maximum", "number"},       {"exclusiveMinimum", "number"},
      {"exclusiveMaximum", "number"},  {"multipleOf", "number"},    {"$fraction", "number"},
      {"$indivisible", "number"},      {"$contains", "array"}};
  const auto found = kTypes.find(keyword);
  return found == kTypes.end() ? std::string_view() : found->second;
}

std::vector<std::string> schema_types(const JsonSchema& schema) {
  static const std::vector<std::string> kAll = {"object", "array", "string", "number", "boolean", "null"};
  std::vector<std::string> types;
  if (const auto named = schema.find("type"); named != schema.end()) {
    for (const JsonSchema& type : named->is_array() ? *named : JsonSchema::array({*named})) {
      const bool known = type == "integer" ||
                         std::any_of(kAll.begin(), kAll.end(), [&](const std::string& name) { return type == name; });
      if (!known) fail(ErrorKind::Usage, "the schema has a type that does not exist: {}", json_text(type));
      types.push_back(type);
    }
    return types;
  }
  for (const std::string& type : kAll) {
    const bool spoken_of = std::any_of(schema.items().begin(), schema.items().end(),
                                       [&](const auto& item) { return type_spoken_of(item.key()) == type; });
    if (spoken_of) types.push_back(type);
  }
  return types.empty() ? kAll : types;
}

}  // namespace millrace
