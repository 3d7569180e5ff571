// Both of two schemas: keyword by keyword.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/json_text.h"
#include "sampling/grammar/ebnf.h"
#include "sampling/grammar/regex.h"
#include "sampling/grammar/schema_document.h"
#include "sampling/grammar/schema_fields.h"
#include "sampling/grammar/string_formats.h"
#include "sampling/grammar/text_rules.h"

namespace millrace {
namespace {

Schema without_excepted(Schema schema);

bool type_allows(const std::string& type, const Schema& value) {
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
  }
  return (type == "number" && value.is_number()) || (type == "string" && value.is_string()) ||
         (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null()) ||
         (type == "array" && value.is_array()) || (type == "object" && value.is_object());
}

bool lists_or_excepts(const Schema& schema) {
  return schema.is_object() && !has_combinator(schema) &&
         (schema.contains("enum") || schema.contains("const") || schema.contains("$except"));
}

// Listed values are compared at once, so that a contradiction ends the choice it stands in.
Schema both(const Schema& a, const Schema& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  if (lists_or_excepts(a) && lists_or_excepts(b)) return without_excepted(merge_schemas(a, b));
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
  const bool closed = a.contains("additionalProperties") || b.contains("additionalProperties");
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

// Members that only the other schema has a pattern for are others here. Where there are no others, their names say so.
Schema with_names_closed(Schema schema, const Schema& other) {
  const auto theirs = other.find("patternProperties");
  const Schema additional = schema.value("additionalProperties", Schema(true));
  const Schema ours = schema.value("patternProperties", Schema::object());
  if (theirs == other.end() || !theirs->is_object() || !ours.is_object() || additional == true) return schema;
  const bool known = std::all_of(theirs->items().begin(), theirs->items().end(),
                                 [&](const auto& item) { return ours.contains(item.key()); });
  if (known) return schema;
  if (additional != false)
    fail(ErrorKind::Usage,
         "the schema combines patternProperties with another's additionalProperties, which cannot be enforced");
  Schema names = Schema::array(), listed = Schema::array();
  const Members members(schema);
  for (const std::string& key : members.keys()) listed.push_back(key);
  if (!listed.empty()) names.push_back({{"enum", std::move(listed)}});
  for (const auto& item : ours.items()) names.push_back({{"pattern", item.key()}});
  const Schema said = names.empty() ? Schema(false) : Schema{{"anyOf", std::move(names)}};
  schema["propertyNames"] = schema.contains("propertyNames") ? both(schema["propertyNames"], said) : said;
  schema.erase("additionalProperties");
  return schema;
}

// The first items under a name of their own, as many as the other schema names: what is said of all items holds for
// them.
Schema with_first_items(Schema schema, const Schema& other) {
  const auto count = [](const Schema& side) {
    const Schema tuple = side.value("items", Schema()), prefix = side.value("prefixItems", Schema());
    return tuple.is_array() ? tuple.size() : prefix.is_array() ? prefix.size() : 0;
  };
  const size_t named = std::max(count(schema), count(other));
  if (named == 0) return schema;
  if (schema.value("items", Schema()).is_array()) {
    Schema tuple = schema["items"];
    schema["prefixItems"] = std::move(tuple);
    schema.erase("items");
    if (schema.contains("additionalItems")) {
      Schema rest = schema["additionalItems"];
      schema["items"] = std::move(rest);
    }
  }
  schema.erase("additionalItems");
  if (!schema.contains("items") && !schema.contains("prefixItems")) return schema;
  Schema prefix = schema.value("prefixItems", Schema::array());
  const Schema rest = schema.value("items", Schema(true));
  constexpr size_t kMostBytes = 4 << 20;
  if (prefix.size() < named && (named - prefix.size()) * json_text(rest).size() > kMostBytes)
    fail(ErrorKind::Usage, "the schema combines very many prefixItems with large items");
  while (prefix.size() < named) prefix.push_back(rest);
  schema["prefixItems"] = std::move(prefix);
  return schema;
}

Schema merge_prefixes(const Schema& a, const Schema& b) {
  Schema merged = Schema::array();
  for (size_t i = 0; i < a.size(); ++i) merged.push_back(both(a[i], b[i]));
  return merged;
}

Schema merge_patterns(Schema a, const Schema& b) {
  for (const auto& item : b.items())
    a[item.key()] = a.contains(item.key()) ? both(a[item.key()], item.value()) : item.value();
  return a;
}

Schema all_of(const Schema& a, const Schema& b) {
  Schema all = a.is_array() ? a : Schema::array({a});
  for (const Schema& one : b.is_array() ? b : Schema::array({b})) {
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  }
  return all;
}

// What is contained, and how often, under a name of its own: several may be.
Schema with_contains_listed(Schema schema) {
  Schema all = schema.value("$contains", Schema::array()), one = Schema::object();
  for (const char* keyword : {"contains", "minContains", "maxContains"}) {
    if (schema.contains(keyword)) one[keyword] = Schema(schema[keyword]);
    schema.erase(keyword);
  }
  if (one.contains("contains")) all.push_back(std::move(one));
  if (!all.empty()) schema["$contains"] = std::move(all);
  return schema;
}

Schema merge_keyword(const std::string& keyword, const Schema& a, const Schema& b) {
  if (a == b) return a;
  const bool numbers = a.is_number() && b.is_number();  // draft 4's exclusive bounds say true or false
  const bool first_is_less = numbers && a.get<long double>() < b.get<long double>();
  if (numbers && (keyword.starts_with("min") || keyword == "exclusiveMinimum")) return first_is_less ? b : a;
  if (numbers && (keyword.starts_with("max") || keyword == "exclusiveMaximum")) return first_is_less ? a : b;
  if (keyword == "type") return merge_types(a, b);
  if (keyword == "enum") return merge_values(a, b);
  if ((keyword == "required" || keyword == "$except" || keyword == "$avoid" || keyword == "$indivisible" ||
       keyword == "$contains") &&
      a.is_array() && b.is_array())
    return all_of(a, b);
  if (keyword == "pattern" || keyword == "format") return all_of(a, b);
  if (keyword == "items" || keyword == "propertyNames") return both(a, b);
  if (keyword == "prefixItems" && a.is_array() && b.is_array() && a.size() == b.size()) return merge_prefixes(a, b);
  if (keyword == "patternProperties" && a.is_object() && b.is_object()) return merge_patterns(a, b);
  if (keyword == "uniqueItems") return a == true || b == true;
  if (keyword == "multipleOf" && numbers) {
    // Whole ones and those that doubles have exactly, such as 0.5.
    constexpr double kParts = 1024;
    const double x = a.get<double>() * kParts, y = b.get<double>() * kParts;
    if (x >= 1 && y >= 1 && x < 1e8 && y < 1e8 && x == std::floor(x) && y == std::floor(y)) {
      const int64_t common = std::lcm(static_cast<int64_t>(x), static_cast<int64_t>(y));
      if (common <= int64_t{1} << 53) return static_cast<double>(common) / kParts;
    }
  }
  fail(ErrorKind::Usage, "the schema has two different \"{}\" for the same value, which cannot be combined", keyword);
}

// In long double, which has room for every 64-bit integer.
struct Limit {
  std::string_view keyword;
  long double (*measure)(const Schema& value);
  bool (*holds)(long double measured, long double limit);
};

const Limit* find_limit(std::string_view keyword) {
  using Number = long double;
  constexpr auto number = [](const Schema& v) { return v.get<Number>(); };
  constexpr auto length = [](const Schema& v) {
    return static_cast<Number>(code_points(v.get_ref<const std::string&>()).size());
  };
  constexpr auto size = [](const Schema& v) { return static_cast<Number>(v.size()); };
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

// The type that a keyword says something about; empty: all of them.
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

// As validators compare values: whatever the order of an object's members, and 1.0 is 1.
std::set<nlohmann::json> excepted_values(const Schema& schema) {
  const Schema except = schema.value("$except", Schema::array());
  std::set<nlohmann::json> values;
  for (const Schema& one : except) values.insert(nlohmann::json(one));
  return values;
}

bool text_satisfies(const std::string& text, const std::string& keyword, const Schema& said, Ebnf& ebnf) {
  const std::vector<std::string> all = texts_of({{keyword, said}}, keyword.c_str());
  return std::all_of(all.begin(), all.end(), [&](const std::string& one) {
    if (keyword == "$avoid") return text_follows({.avoided = {one}}, text, ebnf);
    const std::string regex = keyword == "pattern" ? one : string_format_regex(one, {});
    return (keyword == "format" && regex.empty()) || regex_matches(regex, text, ebnf);
  });
}

// As validators divide.
bool is_multiple(double value, double step) {
  const double quotient = value / step;
  return step > 0 && std::isfinite(quotient) && quotient == std::floor(quotient);
}

// Whether a listed value keeps to what else the schema says. Refuses keywords that would have to be computed.
bool satisfies_all(const Schema& value, const Schema& schema, Ebnf& ebnf) {
  const std::string_view type = value.is_number() ? "number" : value.type_name();
  for (const auto& item : schema.items()) {
    const std::string& keyword = item.key();
    if (keyword == "enum" || keyword == "type" || keyword == "$except" || is_annotation(keyword)) continue;
    if (const std::string_view about = type_spoken_of(keyword); !about.empty() && about != type) continue;
    if (keyword == "pattern" || keyword == "$avoid" || keyword == "format") {
      if (!text_satisfies(value.get<std::string>(), keyword, item.value(), ebnf)) return false;
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
      const auto divides = [&](const Schema& divisor) {
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

// Listed values without those that are excepted; false where none is left.
Schema without_excepted(Schema schema) {
  if (!schema.is_object() || !schema.contains("$except") || !schema.contains("enum")) return schema;
  const std::set<nlohmann::json> excepted = excepted_values(schema);
  Schema left = Schema::array();
  for (const Schema& value : schema["enum"]) {
    if (excepted.count(nlohmann::json(value)) == 0) left.push_back(value);
  }
  if (left.empty()) return false;
  schema["enum"] = std::move(left);
  schema.erase("$except");
  return schema;
}

// An object that has to have a member that nothing matches.
bool misses_required(const Schema& schema) {
  const auto required = schema.find("required"), properties = schema.find("properties");
  if (required == schema.end() || properties == schema.end() || !required->is_array() || !properties->is_object() ||
      schema.value("type", Schema()) != "object")
    return false;
  std::set<std::string> impossible;
  for (const auto& item : properties->items()) {
    if (item.value() == false) impossible.insert(item.key());
  }
  return !impossible.empty() && std::any_of(required->begin(), required->end(), [&](const Schema& key) {
    return key.is_string() && impossible.count(key.get<std::string>()) > 0;
  });
}

// As one of the two that are merged.
Schema beside(const Schema& schema, const Schema& other) {
  return with_first_items(with_contains_listed(with_names_closed(with_enum(schema), other)), other);
}

}  // namespace

// Whatever else a schema has says nothing about which values are valid.
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

Schema merge_schemas(const Schema& first, const Schema& second) {
  if (first.empty()) return second;
  if (second.empty()) return first;
  const Schema a = beside(first, second), b = beside(second, first);
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
  if (misses_required(merged)) return false;
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
  for (const std::string& type : kAll) {
    const bool spoken_of = std::any_of(schema.items().begin(), schema.items().end(),
                                       [&](const auto& item) { return type_spoken_of(item.key()) == type; });
    if (spoken_of) types.push_back(type);
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
