#include "grammar/schema/schema_writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "grammar/pattern/regex.h"
#include "grammar/pattern/text_rules.h"
#include "grammar/schema/number_multiples.h"
#include "grammar/schema/numbers.h"
#include "grammar/schema/schema.h"
#include "grammar/schema/schema_fields.h"
#include "grammar/schema/schema_keywords.h"
#include "grammar/schema/schema_values.h"
#include "grammar/schema/string_formats.h"

namespace millrace {
namespace {

constexpr int kDeepestSchema = 100;

// Integer formats of OpenAPI. Wider formats include all integers that the grammar allows; other formats have no effect
// on numbers.
void add_format_bounds(std::string_view format, NumberBounds& bounds) {
  constexpr std::array<std::tuple<std::string_view, double, double>, 6> kIntegers = {
      {{"int8", -128, 127},
       {"int16", -32768, 32767},
       {"int32", -2147483648.0, 2147483647.0},
       {"uint8", 0, 255},
       {"uint16", 0, 65535},
       {"uint32", 0, 4294967295.0}}};
  for (const auto& [name, least, most] : kIntegers) {
    if (name != format) continue;
    bounds.at_least(least, false);
    bounds.at_most(most, false);
  }
  if (format == "uint" || format == "uint64") bounds.at_least(0, false);
}

// Tries the short form of each format first.
std::optional<GrammarNode> combined_text(const TextRules& rules, const std::vector<std::string>& formats,
                                         RuleBuilder& builder) {
  for (const int64_t longest : {int64_t{60}, rules.lengths.most}) {
    TextRules all = rules;
    const int64_t most = rules.lengths.most < 0 ? longest : std::min(longest, rules.lengths.most);
    for (const std::string& format : formats)
      all.patterns.push_back(string_format_regex(format, {rules.lengths.least, most}));
    if (std::optional<GrammarNode> text = json_text_rule(all, builder); text || formats.empty()) return text;
  }
  return {};
}

bool has_huge_number(const JsonSchema& value) {
  if (value.is_structured()) return std::any_of(value.begin(), value.end(), has_huge_number);
  return value.is_number_float() && std::abs(value.get<double>()) >= 1e18;
}

JsonSchema without_annotations(const JsonSchema& schema) {
  if (!schema.is_object()) return schema;
  JsonSchema bare = JsonSchema::object();
  for (const auto& item : schema.items()) {
    if (!is_annotation(item.key())) bare[item.key()] = item.value();
  }
  return bare;
}

}  // namespace

GrammarNode SchemaWriter::space() {
  // Bounded, since a model can get stuck in writing white space.
  if (!space_) {
    GrammarNode indent = node::repeat(node::one_of({{'\t', '\t'}, {' ', ' '}}), 0, 24);
    space_ = builder_.add(node::maybe(node::choice(" ", node::sequence("\n", std::move(indent)))));
  }
  return *space_;
}

GrammarNode SchemaWriter::character() {
  if (!character_) character_ = builder_.add(json_character(any_character()));
  return *character_;
}

GrammarNode SchemaWriter::any_value() {
  if (!any_value_) {
    any_value_ = builder_.reserve();
    const GrammarNode item = *any_value_;
    GrammarNode items = node::sequence(item, node::any_number(node::sequence(",", space(), item)));
    GrammarNode array = node::sequence("[", space(), node::maybe(std::move(items)), space(), "]");
    GrammarNode text = node::sequence("\"", node::any_number(character()), "\"");
    builder_.define(item, node::choice(any_object(), std::move(array), std::move(text), *number_rule({}, builder_),
                                       "true", "false", "null"));
  }
  return *any_value_;
}

GrammarNode SchemaWriter::any_object() {
  if (!any_object_) {
    any_object_ = builder_.reserve();
    const GrammarNode rule = *any_object_;
    const GrammarNode member =
        builder_.add(node::sequence("\"", node::any_number(character()), "\":", space(), any_value()));
    GrammarNode members = node::sequence(member, node::any_number(node::sequence(",", space(), member)));
    builder_.define(rule, node::sequence("{", space(), node::maybe(std::move(members)), space(), "}"));
  }
  return *any_object_;
}

SchemaWriter::Rule SchemaWriter::value(const JsonSchema& raw) {
  const JsonSchema schema = without_annotations(raw);
  if (schema == false) return {};
  if (schema == true || schema == JsonSchema::object()) return any_value();
  const std::string key = json_text(schema);
  builder_.spend(key.size() / 16);
  if (open_.count(key)) return {};
  if (const auto known = rules_.find(key); known != rules_.end()) {
    if (writing_.count(key)) assumed_.insert(key);
    return known->second;
  }
  if (++depth_ > kDeepestSchema) fail(ErrorKind::Usage, "the schema is nested too deep");
  const GrammarNode rule = rules_[key] = builder_.reserve();
  writing_.insert(key);
  open_.insert(key);
  Rule body = write(schema);
  open_.erase(key);
  writing_.erase(key);
  --depth_;
  if (!body && assumed_.count(key))
    fail(ErrorKind::Usage, "the schema has a part that only something without end could match");
  if (!body) {
    rules_.erase(key);
    return {};
  }
  builder_.define(rule, std::move(*body));
  return rule;
}

SchemaWriter::Rule SchemaWriter::write(const JsonSchema& schema) {
  if (!schema.is_object()) fail(ErrorKind::Usage, "the schema has a {} where a schema should be", schema.type_name());
  if (schema.size() == 1) {
    const auto keyword = schema.begin();
    const std::string& only = keyword.key();
    const JsonSchema& inside = keyword.value();
    if (only == "$ref" && inside.is_string()) {
      const std::string reference = inside.get<std::string>();
      return value_at(reference, document_.resolve(reference));
    }
    if (only == "allOf" && inside.is_array() && inside.size() == 1) return value_at("allOf/0", inside[0]);
    if ((only == "anyOf" || only == "oneOf") && inside.is_array() && !inside.empty()) {
      if (only == "oneOf") return choice(document_.exclusive_options(inside), &SchemaWriter::value);
      return choice(std::vector<JsonSchema>(inside.begin(), inside.end()), &SchemaWriter::value);
    }
  }
  if (has_combinator(schema)) return choice(document_.alternatives(schema), &SchemaWriter::simple);
  return simple(schema);
}

// A reference restarts the path.
std::string SchemaWriter::path() const {
  std::string path = "#";
  for (const std::string& place : path_) path = place.starts_with("#") ? place : path + "/" + place;
  return path;
}

SchemaWriter::Rule SchemaWriter::choice(const std::vector<JsonSchema>& schemas,
                                        Rule (SchemaWriter::*one)(const JsonSchema&)) {
  std::vector<GrammarNode> ways;
  for (const JsonSchema& schema : schemas) {
    if (Rule rule = (this->*one)(schema)) ways.push_back(std::move(*rule));
  }
  return node::choice_of(std::move(ways));
}

SchemaWriter::Rule SchemaWriter::simple(const JsonSchema& given) {
  const JsonSchema schema = with_unevaluated_closed(given);
  refuse_unsupported(schema);
  if (schema.contains("enum") || schema.contains("const")) return listed(schema);
  std::vector<GrammarNode> ways;
  for (const std::string& type : schema_types(schema)) {
    if (Rule rule = typed(type, schema)) ways.push_back(std::move(*rule));
  }
  return node::choice_of(std::move(ways));
}

SchemaWriter::Rule SchemaWriter::listed(const JsonSchema& schema) {
  std::vector<GrammarNode> values;
  for (const JsonSchema& one : allowed_values(schema, builder_)) {
    if (document_.has_huge_integers() && has_huge_number(one))
      fail(ErrorKind::Usage, "the schema lists an integer beyond 64 bits, which cannot be written exactly");
    values.push_back(node::literal(json_text(one)));
  }
  return node::choice_of(std::move(values));
}

SchemaWriter::Rule SchemaWriter::typed(const std::string& type, const JsonSchema& schema) {
  // Excluded single values can be enforced for few types.
  const JsonSchema except = schema.value("$except", JsonSchema::array());
  const bool excepts = std::any_of(except.begin(), except.end(), [&](const JsonSchema& one) {
    return type == one.type_name() || (one.is_number() && type == "integer");
  });
  if (type == "string") return string(schema);
  if (type == "boolean" && excepts) return listed({{"enum", JsonSchema::array({false, true})}, {"$except", except}});
  if (excepts && type != "null")
    fail(ErrorKind::Usage, "the schema excludes single values of type {}, which cannot be enforced", type);
  if (type == "null") return excepts ? Rule() : node::literal("null");
  if (type == "object") return object(schema);
  if (type == "array") return array(schema);
  if (type == "boolean") return node::choice("true", "false");
  return number(schema, type == "integer");
}

SchemaWriter::Rule SchemaWriter::string(const JsonSchema& schema) {
  const Lengths lengths{count_of(schema, "minLength", 0), count_of(schema, "maxLength", -1)};
  if (lengths.most >= 0 && lengths.least > lengths.most) return {};
  TextRules rules{texts_of(schema, "pattern"), texts_of(schema, "$avoid"), excepted_texts(schema), lengths};
  const std::vector<std::string> formats = known_formats(schema);
  const bool one_thing = rules.patterns.size() + formats.size() <= 1 && rules.avoided.empty();
  Rule text;
  if (one_thing && rules.excepted.empty() && rules.patterns.empty() && formats.empty()) {
    text = node::repeat(character(), lengths.least, lengths.most);
  } else if (one_thing && rules.excepted.empty()) {
    const std::string regex = formats.empty() ? rules.patterns.front() : string_format_regex(formats.front(), lengths);
    text = regex_rule(regex, RegexUse::JsonString, lengths, builder_);
  } else {
    text = combined_text(rules, formats, builder_);
  }
  if (!text) return {};
  return node::sequence("\"", std::move(*text), "\"");
}

SchemaWriter::Rule SchemaWriter::number(const JsonSchema& schema, bool integer) {
  NumberBounds bounds;
  bounds.integer = integer;
  for (const char* keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const auto found = schema.find(keyword);
    if (found == schema.end() || found->is_boolean()) continue;
    if (!found->is_number()) fail(ErrorKind::Usage, "the schema's {} is not a number", keyword);
    const bool is_minimum = std::string_view(keyword).ends_with("inimum");
    // In draft 4 a boolean makes the bound beside it exclusive.
    const JsonSchema beside = schema.value(is_minimum ? "exclusiveMinimum" : "exclusiveMaximum", JsonSchema(false));
    const bool exclusive = keyword[0] == 'e' || beside == true;
    const auto bound = found->get<long double>();
    if (is_minimum) {
      bounds.at_least(bound, exclusive);
    } else {
      bounds.at_most(bound, exclusive);
    }
  }
  for (const std::string& format : texts_of(schema, "format")) add_format_bounds(format, bounds);
  const auto multiple = schema.find("multipleOf");
  const bool fraction = schema.value("$fraction", JsonSchema(false)) == true;
  if (multiple != schema.end() && !multiple->is_number())
    fail(ErrorKind::Usage, "the schema's multipleOf is not a number");
  if (fraction && (integer || multiple != schema.end())) return {};
  for (const JsonSchema& one : schema.value("$indivisible", JsonSchema::array()))
    bounds.not_multiples_of.push_back(one.get<int64_t>());
  const double step = multiple != schema.end() ? multiple->get<double>() : 0;
  const bool whole = step >= 1 && step < 1e12 && step == std::floor(step);
  if (whole) bounds.multiple_of = static_cast<int64_t>(step);
  if (!whole && multiple != schema.end() && !bounds.not_multiples_of.empty())
    fail(ErrorKind::Usage, "the schema says of a multiple of {} what must not divide it, which cannot be enforced",
         step);
  if (fraction) return fraction_rule(bounds, builder_);
  return multiple != schema.end() && !whole ? multiples_rule(bounds, step, builder_) : number_rule(bounds, builder_);
}

GrammarNode schema_rule(std::string_view schema, RuleBuilder& builder) {
  const SchemaDocument document(schema);
  SchemaWriter writer(document, builder);
  std::optional<GrammarNode> rule;
  try {
    rule = writer.value(document.root());
  } catch (const Error& error) {
    fail(error.kind(), "{} (at {})", error.what(), shortened(writer.path()));
  }
  if (!rule) fail(ErrorKind::Usage, "no value matches the schema");
  return *rule;
}

GrammarNode any_object_rule(RuleBuilder& builder) {
  const SchemaDocument document("true");
  return SchemaWriter(document, builder).any_object();
}

}  // namespace millrace
