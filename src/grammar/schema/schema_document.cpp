#include "grammar/schema/schema_document.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>

#include "base/error.h"
#include "grammar/schema/schema_fields.h"
#include "grammar/schema/schema_keywords.h"
#include "grammar/schema/schema_references.h"

namespace millrace {
namespace {

constexpr size_t kLongestSchema = 256 << 10;
constexpr size_t kDeepestJson = 256;
constexpr size_t kMostMembers = 4096;
constexpr int kDeepestReference = 32;
constexpr size_t kMostAlternatives = 256;
constexpr size_t kMostOneOf = 128;
constexpr size_t kMostParts = 1 << 20;  // parts of combined schemas: less than a second of work

// Checks the text before the full parse: ordered_json takes quadratic time in the number of keys of an object. Returns
// whether the text has an integer beyond 64 bits, which parses as a double.
bool check_shape(std::string_view text) {
  constexpr size_t kSafeDigits = 18;
  bool huge = false;
  size_t digits = 0;
  struct Open {
    bool object;
    size_t commas;
  };
  std::vector<Open> open;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    digits = !in_string && c >= '0' && c <= '9' ? digits + 1 : 0;
    huge = huge || digits > kSafeDigits;
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      open.push_back({c == '{', 0});
      if (open.size() > kDeepestJson)
        fail(ErrorKind::Usage, "the schema is nested deeper than {} levels", kDeepestJson);
    } else if (c == ',' && !open.empty()) {
      if (++open.back().commas >= kMostMembers && open.back().object)
        fail(ErrorKind::Usage, "the schema has an object with more than {} members", kMostMembers);
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
    }
  }
  return huge;
}

std::string decode_pointer_part(std::string_view part) {
  std::string decoded;
  for (size_t i = 0; i < part.size(); ++i) {
    unsigned value = 0;
    if (part[i] == '~' && i + 1 < part.size() && (part[i + 1] == '0' || part[i + 1] == '1')) {
      decoded += part[++i] == '0' ? '~' : '/';
    } else if (part[i] == '%' && i + 2 < part.size() &&
               std::from_chars(part.data() + i + 1, part.data() + i + 3, value, 16).ptr == part.data() + i + 3) {
      decoded += static_cast<char>(value);
      i += 2;
    } else {
      decoded += part[i];
    }
  }
  return decoded;
}

const JsonSchema* member(const JsonSchema& value, const std::string& name) {
  if (value.is_object()) {
    const auto found = value.find(name);
    return found == value.end() ? nullptr : &*found;
  }
  size_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool number = error == std::errc() && end == name.data() + name.size();
  return value.is_array() && number && index < value.size() ? &value[index] : nullptr;
}

const JsonSchema& list_of(const JsonSchema& schema, const char* keyword) {
  const JsonSchema& list = schema[keyword];
  if (!list.is_array() || list.empty()) fail(ErrorKind::Usage, "the schema's {} is not a list of schemas", keyword);
  return list;
}

size_t parts_of(const JsonSchema& schema) {
  size_t parts = 1;
  if (!schema.is_structured()) return parts;
  for (const JsonSchema& inside : schema) parts += parts_of(inside);
  return parts;
}

std::string reference_of(const JsonSchema& reference) {
  if (!reference.is_string()) fail(ErrorKind::Usage, "the schema has a $ref that is not a string");
  return reference.get<std::string>();
}

constexpr const char* kCombinators[] = {
    "$ref",        "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas",
    "dependencies"};

[[noreturn]] void fail_too_many() {
  fail(ErrorKind::Usage, "the schema's combinations of allOf, anyOf and oneOf are more than {}", kMostAlternatives);
}

JsonSchema without_combinators(JsonSchema schema) {
  if (!schema.is_object())
    fail(ErrorKind::Usage, "the schema has a value where a schema should be: {}", schema.type_name());
  for (const char* combinator : kCombinators) schema.erase(combinator);
  return schema;
}

bool has_unevaluated(const JsonSchema& value) {
  if (!value.is_structured()) return false;
  if (value.is_object() && (value.contains("unevaluatedProperties") || value.contains("unevaluatedItems"))) return true;
  return std::any_of(value.begin(), value.end(), has_unevaluated);
}

bool is_closed_without(const JsonSchema& object, const std::string& key) {
  const auto properties = object.find("properties");
  const bool listed = properties != object.end() && properties->contains(key);
  const auto additional = object.find("additionalProperties");
  const bool open = additional != object.end() ? *additional != false : properties == object.end();
  return !listed && !open && !object.contains("patternProperties");
}

std::set<std::string> required_keys(const JsonSchema& object) {
  std::set<std::string> keys;
  const auto required = object.find("required");
  if (required == object.end() || !required->is_array()) return keys;
  for (const JsonSchema& key : *required) {
    if (key.is_string()) keys.insert(key.get<std::string>());
  }
  return keys;
}

bool is_listed(const JsonSchema& schema) { return schema.contains("enum") || schema.contains("const"); }

// The types of the listed values, if any: a const needs no type beside it.
std::set<std::string> value_types(const JsonSchema& schema) {
  std::set<std::string> types;
  if (!is_listed(schema)) {
    for (const std::string& type : schema_types(schema)) types.insert(type == "integer" ? "number" : type);
    return types;
  }
  const JsonSchema values = schema.contains("const") ? JsonSchema::array({schema["const"]}) : schema["enum"];
  for (const JsonSchema& value : values) types.emplace(value.is_number() ? "number" : value.type_name());
  return types;
}

// Adds the types that the grammar allows for the schema. Validators do not apply this: minLength has no effect on a
// number.
bool types_overlap(const JsonSchema& written, const JsonSchema& test) {
  if (!is_listed(test) && !test.contains("type")) return true;
  const std::set<std::string> types = value_types(written), tested = value_types(test);
  return std::any_of(types.begin(), types.end(), [&](const std::string& type) { return tested.count(type) > 0; });
}

}  // namespace

JsonSchema with_unevaluated_closed(JsonSchema schema) {
  if (!schema.is_object() || is_listed(schema)) return schema;  // refused beside listed values
  const auto take = [&](const char* keyword) {
    const auto found = schema.find(keyword);
    if (found == schema.end() || !found->is_boolean()) return false;
    const bool closed = *found == false;
    schema.erase(keyword);
    return closed;
  };
  if (take("unevaluatedProperties") && !schema.contains("additionalProperties")) schema["additionalProperties"] = false;
  if (take("unevaluatedItems")) {
    const bool tuple = schema.contains("items") && schema["items"].is_array();
    const char* rest = tuple ? "additionalItems" : "items";
    if (!schema.contains(rest)) schema[rest] = false;
  }
  return schema;
}

SchemaDocument::SchemaDocument(std::string_view text) {
  if (text.size() > kLongestSchema) fail(ErrorKind::Usage, "the schema is longer than {} KiB", kLongestSchema >> 10);
  has_huge_integers_ = check_shape(text);
  root_ = JsonSchema::parse(text, nullptr, false);
  if (root_.is_discarded()) fail(ErrorKind::Usage, "the schema is not valid JSON");
  counts_evaluated_ = has_unevaluated(root_);
  resolve_references(root_);
  const JsonSchema draft = root_.is_object() ? root_.value("$schema", JsonSchema()) : JsonSchema();
  reference_is_all_ = draft.is_string() && draft.get_ref<const std::string&>().find("/draft-0") != std::string::npos;
}

void SchemaDocument::spend(const JsonSchema& schema) const { spend(parts_of(schema)); }

void SchemaDocument::spend(size_t parts) const {
  spent_ += parts;
  if (spent_ > kMostParts) fail(ErrorKind::Usage, "the schema's references and combinations stand for too much");
}

const JsonSchema& SchemaDocument::resolve(const std::string& reference) const {
  if (reference == "#") return root_;
  if (!reference.starts_with("#/")) {
    fail(ErrorKind::Usage,
         "the schema's $ref \"{}\" names no place in the schema, and others are not fetched: put what it means under "
         "$defs",
         shortened(reference));
  }
  const JsonSchema* place = &root_;
  for (size_t begin = 2; begin <= reference.size();) {
    const size_t end = std::min(reference.find('/', begin), reference.size());
    place = member(*place, decode_pointer_part(std::string_view(reference).substr(begin, end - begin)));
    if (!place) fail(ErrorKind::Usage, "the schema has no place \"{}\", which a $ref names", shortened(reference));
    begin = end + 1;
  }
  return *place;
}

// All pairs merged, without empty intersections.
std::vector<JsonSchema> SchemaDocument::product(const std::vector<JsonSchema>& left,
                                                const std::vector<JsonSchema>& right) const {
  if (left.size() * right.size() > kMostAlternatives) fail_too_many();
  std::vector<JsonSchema> merged;
  for (const JsonSchema& a : left) {
    for (const JsonSchema& b : right) {
      JsonSchema both = merge_schemas(a, b);
      spend(both);
      if (both != false) merged.push_back(std::move(both));
    }
  }
  return merged;
}

// The schema without its combinators and references.
std::vector<JsonSchema> SchemaDocument::uncombined(const JsonSchema& schema, int depth) const {
  if (depth > kDeepestReference)
    fail(ErrorKind::Usage, "the schema's references and combinations go in a circle or too deep");
  spend(schema);
  if (schema == false) return {};
  if (schema == true) return {JsonSchema::object()};
  return {without_combinators(schema)};
}

std::vector<JsonSchema> SchemaDocument::alternatives(const JsonSchema& schema, int depth) const {
  std::vector<JsonSchema> result = uncombined(schema, depth);
  if (!schema.is_object()) return result;
  if (const auto reference = schema.find("$ref"); reference != schema.end())
    result = product(result, alternatives(resolve(reference_of(*reference)), depth + 1));
  if (schema.contains("allOf")) {
    for (const JsonSchema& part : list_of(schema, "allOf")) result = product(result, alternatives(part, depth + 1));
  }
  for (const JsonSchema& condition : conditions(schema)) result = product(result, alternatives(condition, depth + 1));
  if (schema.contains("not")) result = product(result, alternatives(negation(schema["not"], depth + 1), depth + 1));
  const auto choose = [&](const auto& list) {
    std::vector<JsonSchema> options;
    for (const JsonSchema& option : list) {
      for (JsonSchema& one : alternatives(option, depth + 1)) options.push_back(std::move(one));
    }
    result = product(result, options);
  };
  if (schema.contains("anyOf")) choose(list_of(schema, "anyOf"));
  if (schema.contains("oneOf")) {
    const JsonSchema& options = list_of(schema, "oneOf");
    const Tests tests = tests_of(options, depth);
    std::vector<JsonSchema> chosen;
    for (size_t i = 0; i < options.size(); ++i) {
      std::vector<JsonSchema> ways = exclusive_ways(result, options, tests, i, depth, nullptr);
      std::move(ways.begin(), ways.end(), std::back_inserter(chosen));
    }
    if (chosen.size() > kMostAlternatives) fail_too_many();
    result = std::move(chosen);
  }
  if (counts_evaluated_) {
    for (JsonSchema& one : result) one = with_unevaluated_closed(std::move(one));
  }
  return result;
}

std::vector<JsonSchema> SchemaDocument::loose_alternatives(const JsonSchema& schema, int depth) const {
  std::vector<JsonSchema> result = uncombined(schema, depth);
  if (!schema.is_object()) return result;
  if (const auto reference = schema.find("$ref"); reference != schema.end() && reference_is_all_)
    return loose_alternatives(resolve(reference_of(*reference)), depth + 1);
  if (const auto reference = schema.find("$ref"); reference != schema.end())
    result = product(result, loose_alternatives(resolve(reference_of(*reference)), depth + 1));
  if (schema.contains("allOf")) {
    for (const JsonSchema& part : list_of(schema, "allOf"))
      result = product(result, loose_alternatives(part, depth + 1));
  }
  for (const char* choice : {"anyOf", "oneOf"}) {
    if (!schema.contains(choice)) continue;
    std::vector<JsonSchema> options;
    for (const JsonSchema& option : list_of(schema, choice)) {
      for (JsonSchema& one : loose_alternatives(option, depth + 1)) options.push_back(std::move(one));
    }
    result = product(result, options);
  }
  return result;
}

std::vector<JsonSchema> SchemaDocument::exclusive_options(const JsonSchema& options) const {
  const Tests tests = tests_of(options, 0);
  std::vector<JsonSchema> result;
  for (size_t i = 0; i < options.size(); ++i) {
    bool as_it_is = true;
    std::vector<JsonSchema> ways = exclusive_ways({JsonSchema::object()}, options, tests, i, 0, &as_it_is);
    if (as_it_is) {
      result.push_back(options[i]);
    } else {
      std::move(ways.begin(), ways.end(), std::back_inserter(result));
    }
  }
  return result;
}

// Computed once, since each option is compared with all others.
SchemaDocument::Tests SchemaDocument::tests_of(const JsonSchema& options, int depth) const {
  if (options.size() > kMostOneOf) fail(ErrorKind::Usage, "the schema has a oneOf of more than {} options", kMostOneOf);
  Tests tests(options.size());
  for (size_t i = 0; i < options.size() && options.size() > 1 && depth + 1 < kDeepestReference; ++i)
    tests[i] = loose_alternatives(options[i], depth + 2);
  return tests;
}

std::vector<JsonSchema> SchemaDocument::exclusive_ways(const std::vector<JsonSchema>& bases, const JsonSchema& options,
                                                       const Tests& tests, size_t index, int depth,
                                                       bool* as_it_is) const {
  std::vector<JsonSchema> result;
  for (JsonSchema& written : product(bases, alternatives(options[index], depth + 1))) {
    std::vector<JsonSchema> ways = {written};
    Apart relied_on;
    for (size_t j = 0; j < options.size(); ++j) {
      if (j == index) continue;
      if (excludes(written, tests[j], relied_on, depth + 1, 0)) continue;
      if (as_it_is) *as_it_is = false;
      ways = product(ways, alternatives(negation(options[j], depth + 1), depth + 1));
    }
    if (as_it_is && !relied_on.inside.empty()) *as_it_is = false;
    for (const std::vector<JsonSchema>* facts : {&relied_on.itself, &relied_on.inside}) {
      for (const JsonSchema& fact : *facts) ways = product(ways, std::vector<JsonSchema>(1, fact));
    }
    std::move(ways.begin(), ways.end(), std::back_inserter(result));
  }
  return result;
}

// `written` has no combinators. The grammar closes it: no additional members beside listed properties.
bool SchemaDocument::excludes(const JsonSchema& written, const std::vector<JsonSchema>& tests, Apart& relied_on,
                              int depth, int nested) const {
  if (nested > 3 || depth >= kDeepestReference) return false;
  const bool typed = is_listed(written) || written.contains("type");
  const auto rely_on_type = [&] {
    if (!typed) relied_on.add({{"type", schema_types(written)}});
  };
  const auto apart = [&](const JsonSchema& test) {
    if (!types_overlap(written, test)) {
      rely_on_type();
      return true;
    }
    if (is_listed(written) && is_listed(test)) {
      spend((parts_of(written) + parts_of(test)) / 4);
      return merge_schemas(written, test) == false;
    }
    if (schema_types(written) != std::vector<std::string>{"object"}) return false;
    const std::set<std::string> has = required_keys(written), wants = required_keys(test);
    for (const std::string& key : wants) {
      if (has.count(key) || !is_closed_without(written, key)) continue;
      rely_on_type();
      if (!written.contains("additionalProperties")) relied_on.add({{"properties", {{key, false}}}});
      return true;
    }
    const bool both = written.contains("properties") && written["properties"].is_object() &&
                      test.contains("properties") && test["properties"].is_object();
    return both && std::any_of(has.begin(), has.end(), [&](const std::string& key) {
             if (!written["properties"].contains(key) || !test["properties"].contains(key)) return false;
             const std::vector<JsonSchema> others = nested < 3 && depth + 1 < kDeepestReference
                                                        ? loose_alternatives(test["properties"][key], depth + 2)
                                                        : std::vector<JsonSchema>();
             JsonSchema values = JsonSchema::array();
             bool relies = false;
             for (const JsonSchema& value : loose_alternatives(written["properties"][key], depth + 1)) {
               Apart inside;
               if (!excludes(value, others, inside, depth + 1, nested + 1)) return false;
               JsonSchema parts = JsonSchema::array({value});
               for (const std::vector<JsonSchema>* facts : {&inside.itself, &inside.inside}) {
                 for (const JsonSchema& fact : *facts) parts.push_back(fact);
               }
               relies = relies || parts.size() > 1;
               values.push_back({{"allOf", std::move(parts)}});
             }
             rely_on_type();
             if (relies) {
               JsonSchema fact = {{"properties", {{key, {{"anyOf", std::move(values)}}}}}};
               spend(fact);
               relied_on.inside.push_back(std::move(fact));
             }
             return true;
           });
  };
  return std::all_of(tests.begin(), tests.end(), apart);
}

}  // namespace millrace
