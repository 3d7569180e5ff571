// The intersection of two schemas, keyword by keyword.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/json_text.h"
#include "grammar/schema/schema_document.h"
#include "grammar/schema/schema_keywords.h"
#include "grammar/schema/schema_values.h"

namespace millrace {
namespace {

bool lists_or_excepts(const JsonSchema& schema) {
  return schema.is_object() && !has_combinator(schema) &&
         (schema.contains("enum") || schema.contains("const") || schema.contains("$except"));
}

// Intersects enums early, so that a contradiction removes its alternative.
JsonSchema both(const JsonSchema& a, const JsonSchema& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  if (lists_or_excepts(a) && lists_or_excepts(b)) return without_excepted(merge_schemas(a, b));
  return {{"allOf", JsonSchema::array({a, b})}};
}

JsonSchema merge_types(const JsonSchema& a, const JsonSchema& b) {
  const auto listed = [](const JsonSchema& type) { return type.is_array() ? type : JsonSchema::array({type}); };
  JsonSchema common = JsonSchema::array();
  for (const JsonSchema& x : listed(a)) {
    for (const JsonSchema& y : listed(b)) {
      if (x == y || (x == "integer" && y == "number")) common.push_back(x);
      if (x == "number" && y == "integer") common.push_back(y);
    }
  }
  return common;
}

// The conditions on members by name. Lookup is faster than in ordered_json, which searches linearly.
class Members {
 public:
  explicit Members(const JsonSchema& object) : others_(object.value("additionalProperties", JsonSchema(true))) {
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
  const JsonSchema& of(const std::string& key) const {
    const auto found = listed_.find(key);
    return found == listed_.end() ? others_ : *found->second;
  }

 private:
  JsonSchema others_;
  std::unordered_map<std::string, const JsonSchema*> listed_;
  std::vector<std::string> keys_;
};

void merge_properties(JsonSchema& merged, const JsonSchema& a, const JsonSchema& b) {
  const auto speaks = [](const JsonSchema& side) {
    return side.contains("properties") || side.contains("patternProperties") || side.contains("additionalProperties");
  };
  if (!speaks(a) || !speaks(b)) {
    const JsonSchema& only = speaks(a) ? a : b;
    for (const char* keyword : {"properties", "additionalProperties"}) {
      if (only.contains(keyword)) merged[keyword] = only[keyword];
    }
    return;
  }
  const bool closed = a.contains("additionalProperties") || b.contains("additionalProperties");
  const Members of_a(a), of_b(b);
  JsonSchema properties = JsonSchema::object();
  auto& list = properties.get_ref<JsonSchema::object_t&>();
  for (const std::string& key : of_a.keys()) list.emplace_back(key, both(of_a.of(key), of_b.of(key)));
  for (const std::string& key : of_b.keys()) {
    if (!of_a.lists(key)) list.emplace_back(key, both(of_a.of(key), of_b.of(key)));
  }
  if (!properties.empty() || a.contains("properties") || b.contains("properties"))
    merged["properties"] = std::move(properties);
  if (closed)
    merged["additionalProperties"] =
        both(a.value("additionalProperties", JsonSchema(true)), b.value("additionalProperties", JsonSchema(true)));
}

// Members that match only a pattern of the other schema are additional members here. If those are forbidden,
// propertyNames excludes them.
JsonSchema with_names_closed(JsonSchema schema, const JsonSchema& other) {
  const auto theirs = other.find("patternProperties");
  const JsonSchema additional = schema.value("additionalProperties", JsonSchema(true));
  const JsonSchema ours = schema.value("patternProperties", JsonSchema::object());
  if (theirs == other.end() || !theirs->is_object() || !ours.is_object() || additional == true) return schema;
  const bool known = std::all_of(theirs->items().begin(), theirs->items().end(),
                                 [&](const auto& item) { return ours.contains(item.key()); });
  if (known) return schema;
  if (additional != false)
    fail(ErrorKind::Usage,
         "the schema combines patternProperties with another's additionalProperties, which cannot be enforced");
  JsonSchema names = JsonSchema::array(), listed = JsonSchema::array();
  const Members members(schema);
  for (const std::string& key : members.keys()) listed.push_back(key);
  if (!listed.empty()) names.push_back({{"enum", std::move(listed)}});
  for (const auto& item : ours.items()) names.push_back({{"pattern", item.key()}});
  const JsonSchema said = names.empty() ? JsonSchema(false) : JsonSchema{{"anyOf", std::move(names)}};
  schema["propertyNames"] = schema.contains("propertyNames") ? both(schema["propertyNames"], said) : said;
  schema.erase("additionalProperties");
  return schema;
}

// prefixItems extended to the length of the other schema's: `items` applies to the added positions.
JsonSchema with_first_items(JsonSchema schema, const JsonSchema& other) {
  const auto count = [](const JsonSchema& side) {
    const JsonSchema tuple = side.value("items", JsonSchema()), prefix = side.value("prefixItems", JsonSchema());
    return tuple.is_array() ? tuple.size() : prefix.is_array() ? prefix.size() : 0;
  };
  const size_t named = std::max(count(schema), count(other));
  if (named == 0) return schema;
  if (schema.value("items", JsonSchema()).is_array()) {
    JsonSchema tuple = schema["items"];
    schema["prefixItems"] = std::move(tuple);
    schema.erase("items");
    if (schema.contains("additionalItems")) {
      JsonSchema rest = schema["additionalItems"];
      schema["items"] = std::move(rest);
    }
  }
  schema.erase("additionalItems");
  if (!schema.contains("items") && !schema.contains("prefixItems")) return schema;
  JsonSchema prefix = schema.value("prefixItems", JsonSchema::array());
  const JsonSchema rest = schema.value("items", JsonSchema(true));
  constexpr size_t kMostBytes = 4 << 20;
  if (prefix.size() < named && (named - prefix.size()) * json_text(rest).size() > kMostBytes)
    fail(ErrorKind::Usage, "the schema combines very many prefixItems with large items");
  while (prefix.size() < named) prefix.push_back(rest);
  schema["prefixItems"] = std::move(prefix);
  return schema;
}

JsonSchema merge_prefixes(const JsonSchema& a, const JsonSchema& b) {
  JsonSchema merged = JsonSchema::array();
  for (size_t i = 0; i < a.size(); ++i) merged.push_back(both(a[i], b[i]));
  return merged;
}

JsonSchema merge_patterns(JsonSchema a, const JsonSchema& b) {
  for (const auto& item : b.items())
    a[item.key()] = a.contains(item.key()) ? both(a[item.key()], item.value()) : item.value();
  return a;
}

JsonSchema all_of(const JsonSchema& a, const JsonSchema& b) {
  JsonSchema all = a.is_array() ? a : JsonSchema::array({a});
  for (const JsonSchema& one : b.is_array() ? b : JsonSchema::array({b})) {
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  }
  return all;
}

// Collects `contains` with its counts under $contains: a merged schema can have several.
JsonSchema with_contains_listed(JsonSchema schema) {
  JsonSchema all = schema.value("$contains", JsonSchema::array()), one = JsonSchema::object();
  for (const char* keyword : {"contains", "minContains", "maxContains"}) {
    if (schema.contains(keyword)) one[keyword] = JsonSchema(schema[keyword]);
    schema.erase(keyword);
  }
  if (one.contains("contains")) all.push_back(std::move(one));
  if (!all.empty()) schema["$contains"] = std::move(all);
  return schema;
}

JsonSchema merge_keyword(const std::string& keyword, const JsonSchema& a, const JsonSchema& b) {
  if (a == b) return a;
  const bool numbers = a.is_number() && b.is_number();  // exclusive bounds of draft 4 are booleans
  const bool first_is_less = numbers && a.get<long double>() < b.get<long double>();
  if (numbers && (keyword.starts_with("min") || keyword == "exclusiveMinimum")) return first_is_less ? b : a;
  if (numbers && (keyword.starts_with("max") || keyword == "exclusiveMaximum")) return first_is_less ? a : b;
  if (keyword == "type") return merge_types(a, b);
  if (keyword == "enum") return common_values(a, b);
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
    // Integers, and fractions that doubles represent exactly, such as 0.5.
    constexpr double kParts = 1024;
    const double x = a.get<double>() * kParts, y = b.get<double>() * kParts;
    if (x >= 1 && y >= 1 && x < 1e8 && y < 1e8 && x == std::floor(x) && y == std::floor(y)) {
      const int64_t common = std::lcm(static_cast<int64_t>(x), static_cast<int64_t>(y));
      if (common <= int64_t{1} << 53) return static_cast<double>(common) / kParts;
    }
  }
  fail(ErrorKind::Usage, "the schema has two different \"{}\" for the same value, which cannot be combined", keyword);
}

// Whether a required member can match nothing.
bool misses_required(const JsonSchema& schema) {
  const auto required = schema.find("required"), properties = schema.find("properties");
  if (required == schema.end() || properties == schema.end() || !required->is_array() || !properties->is_object() ||
      schema.value("type", JsonSchema()) != "object")
    return false;
  std::set<std::string> impossible;
  for (const auto& item : properties->items()) {
    if (item.value() == false) impossible.insert(item.key());
  }
  return !impossible.empty() && std::any_of(required->begin(), required->end(), [&](const JsonSchema& key) {
    return key.is_string() && impossible.count(key.get<std::string>()) > 0;
  });
}

// Prepares a schema for merging.
JsonSchema beside(const JsonSchema& schema, const JsonSchema& other) {
  return with_first_items(with_contains_listed(with_names_closed(with_enum(schema), other)), other);
}

}  // namespace

JsonSchema merge_schemas(const JsonSchema& first, const JsonSchema& second) {
  if (first.empty()) return second;
  if (second.empty()) return first;
  const JsonSchema a = beside(first, second), b = beside(second, first);
  JsonSchema merged = JsonSchema::object();
  for (const JsonSchema* side : {&a, &b}) {
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

}  // namespace millrace
