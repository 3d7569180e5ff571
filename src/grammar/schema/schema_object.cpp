// Objects of a schema: listed members in their order, then additional ones.
#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "grammar/pattern/pattern_language.h"
#include "grammar/pattern/regex.h"
#include "grammar/pattern/text_rules.h"
#include "grammar/schema/schema_fields.h"
#include "grammar/schema/schema_values.h"
#include "grammar/schema/schema_writer.h"
#include "grammar/schema/string_formats.h"

namespace millrace {
namespace {

constexpr size_t kMostRequired = 4096;
constexpr int64_t kMostCountedKeys = 36;
constexpr int64_t kFurthestApart = 8;  // common beginning of keys, in characters
constexpr size_t kMostPatterns = 16;   // with more, additional members are left out
constexpr size_t kMostApart = 400;     // listed keys beside patterns; with more, additional members are left out

const CodeSet kPlain = CodeSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}.complement();

const JsonSchema& properties_of(const JsonSchema& schema) {
  static const JsonSchema kNone = JsonSchema::object();
  const auto found = schema.find("properties");
  if (found == schema.end()) return kNone;
  if (!found->is_object()) fail(ErrorKind::Usage, "the schema's properties are not an object");
  return *found;
}

std::vector<std::string> required_of(const JsonSchema& schema) {
  std::vector<std::string> keys;
  const auto found = schema.find("required");
  if (found == schema.end()) return keys;
  if (!found->is_array()) fail(ErrorKind::Usage, "the schema's required is not a list of strings");
  for (const JsonSchema& key : *found) {
    if (!key.is_string()) fail(ErrorKind::Usage, "the schema's required is not a list of strings");
    keys.push_back(key.get<std::string>());
  }
  return keys;
}

bool holds(const std::vector<std::string>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Engines disagree about the letters beyond ASCII in classes such as \w.
bool may_match(const std::string& pattern, const std::string& key, RuleBuilder& builder) {
  if (regex_matches(pattern, key, builder)) return true;
  const bool ascii = std::all_of(key.begin(), key.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return !ascii && !text_follows({.avoided = {pattern}}, key, builder);
}

// The patternProperties that apply to a member: in all engines (`surely`), or in some.
JsonSchema patterns_for(const JsonSchema& schema, const std::string& key, bool surely, RuleBuilder& builder) {
  JsonSchema all = JsonSchema::array();
  const auto patterns = schema.find("patternProperties");
  if (patterns == schema.end()) return all;
  if (!patterns->is_object()) fail(ErrorKind::Usage, "the schema's patternProperties are not an object");
  for (const auto& item : patterns->items()) {
    if (surely ? regex_matches(item.key(), key, builder) : may_match(item.key(), key, builder))
      all.push_back(item.value());
  }
  return all;
}

// An object with listed properties has no additional ones unless the schema allows them explicitly.
JsonSchema others_of(const JsonSchema& schema) {
  const bool listed = schema.contains("properties") || schema.contains("patternProperties");
  return schema.value("additionalProperties", JsonSchema(!listed));
}

}  // namespace

// If propertyNames is an enum, its names become listed members.
JsonSchema SchemaWriter::with_names_listed(JsonSchema schema) const {
  if (!schema.contains("propertyNames") || schema["propertyNames"] == true) return schema;
  JsonSchema properties = properties_of(schema);
  for (const JsonSchema& way :
       document_.alternatives({{"allOf", JsonSchema::array({{{"type", "string"}}, schema["propertyNames"]})}})) {
    if (!way.contains("enum") && !way.contains("const")) return schema;
    const std::vector<JsonSchema> names = allowed_values(way, builder_);
    if (names.size() + properties.size() > kMostApart) return schema;
    for (const JsonSchema& name : names) {
      const std::string key = name.get<std::string>();
      if (properties.contains(key)) continue;
      const bool by_pattern = !patterns_for(schema, key, true, builder_).empty();
      properties[key] = by_pattern ? JsonSchema(true) : schema.value("additionalProperties", JsonSchema(true));
    }
  }
  schema["properties"] = std::move(properties);
  schema["additionalProperties"] = false;
  return schema;
}

SchemaWriter::Rule SchemaWriter::object(const JsonSchema& given) {
  const JsonSchema schema = with_names_listed(given);
  std::optional<std::vector<Member>> listed = members(schema);
  if (!listed) return {};
  int64_t least = count_of(schema, "minProperties", 0), most = count_of(schema, "maxProperties", -1);
  // Meets the counts by dropping optional members or making them required.
  const auto required = [&] {
    return std::count_if(listed->begin(), listed->end(), [](const Member& m) { return m.required; });
  };
  for (auto it = listed->end(); it != listed->begin() && most >= 0 && static_cast<int64_t>(listed->size()) > most;) {
    --it;
    if (!it->required) it = listed->erase(it);
  }
  for (Member& member : *listed) {
    if (required() >= least) break;
    member.required = true;
  }
  int64_t missing = std::max<int64_t>(least - required(), 0),
          room = most < 0 ? -1 : most - static_cast<int64_t>(listed->size());
  if (most >= 0 && (room < 0 || least > most || missing > room)) return {};
  if (missing > 1) {
    // A model may write a key twice. The counted members get disjoint sets of keys, which differ in one character.
    if (missing > kMostCountedKeys)
      fail(ErrorKind::Usage, "the schema's minProperties of more than {} unlisted members cannot be enforced",
           kMostCountedKeys);
    for (const KeyPart& part : parts_of_keys(schema, missing)) {
      const Rule member = extra_member(schema, true, part);
      if (!member)
        fail(ErrorKind::Usage, "the schema's minProperties cannot be enforced: a model may write the same key twice");
      listed->push_back({*member, true});
    }
    room = room < 0 ? room : room - std::exchange(missing, 0);
    missing = 0;
  }
  const Rule extra = room == 0     ? Rule()
                     : missing > 0 ? extra_member(schema, true)
                                   : optionally([&] { return extra_member(schema, false); });
  if (missing > 0 && !extra) return {};
  return node::sequence("{", space(), member_list(*listed, extra, missing, room), space(), "}");
}

std::optional<std::vector<SchemaWriter::Member>> SchemaWriter::members(const JsonSchema& schema) {
  const std::vector<std::string> required = required_of(schema);
  if (required.size() > kMostRequired)
    fail(ErrorKind::Usage, "the schema requires more than {} members of an object", kMostRequired);
  JsonSchema properties = properties_of(schema);
  for (const std::string& key : required) {
    if (properties.contains(key)) continue;
    const bool by_pattern = !patterns_for(schema, key, true, builder_).empty();
    properties[key] = by_pattern ? JsonSchema(true) : schema.value("additionalProperties", JsonSchema(true));
  }
  for (auto& item : properties.items()) {
    JsonSchema all = patterns_for(schema, item.key(), false, builder_);
    if (all.empty()) continue;
    all.insert(all.begin(), item.value());
    item.value() = {{"allOf", std::move(all)}};
  }
  std::vector<Member> result;
  for (const auto& item : properties.items()) {
    const bool needed = holds(required, item.key());
    if (!may_be_called(schema, item.key())) {
      if (needed) return {};
      continue;
    }
    const auto write = [&] { return value_at("properties/" + item.key(), item.value()); };
    const Rule rule = needed ? write() : optionally(write);
    if (rule) {
      result.push_back({node::sequence(json_text(JsonSchema(item.key())) + ":", space(), *rule), needed});
    } else if (needed) {
      return {};
    }
  }
  return result;
}

bool SchemaWriter::may_be_called(const JsonSchema& schema, const std::string& key) const {
  const auto names = schema.find("propertyNames");
  if (names == schema.end()) return true;
  const JsonSchema named = {{"enum", JsonSchema::array({key})}};
  const std::vector<JsonSchema> ways = document_.alternatives({{"allOf", JsonSchema::array({named, *names})}});
  return std::any_of(ways.begin(), ways.end(),
                     [&](const JsonSchema& way) { return !allowed_values(way, builder_).empty(); });
}

// Partitions the keys of unlisted members into `count` parts. Throws Usage if their common beginning is too long.
std::vector<SchemaWriter::KeyPart> SchemaWriter::parts_of_keys(const JsonSchema& schema, int64_t count) {
  TextLanguages languages(builder_);
  std::vector<TextLanguages::Id> ways;
  const JsonSchema patterns = schema.value("patternProperties", JsonSchema::object());
  for (const auto& item : patterns.items()) {
    if (item.value() != false) ways.push_back(pattern_language(item.key(), RegexUse::JsonString, languages));
  }
  TextLanguages::Id keys = others_of(schema) == false ? languages.either(std::move(ways)) : TextLanguages::kAnything;
  if (schema.contains("propertyNames"))
    keys = languages.both({keys, names_language(schema["propertyNames"], languages)});
  for (int64_t at = 0; at < kFurthestApart; ++at) {
    std::vector<KeyPart> parts(static_cast<size_t>(count));
    int64_t found = 0;
    for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")) {
      const KeyPart one{at, {{static_cast<unsigned char>(c), static_cast<unsigned char>(c)}}};
      if (!has_json_text(languages, languages.both({keys, language_of_part(one, languages)}))) continue;
      KeyPart& part = parts[static_cast<size_t>(found++ % count)];
      part.at = at;
      part.characters.add(one.characters);
    }
    if (found >= count) return parts;
  }
  fail(ErrorKind::Usage, "the schema's minProperties cannot be enforced: a model may write the same key twice");
}

TextLanguages::Id SchemaWriter::language_of_part(const KeyPart& part, TextLanguages& languages) {
  const TextLanguages::Id before = languages.repeat(languages.one_of(any_character()), part.at, part.at);
  const TextLanguages::Id behind = languages.sequence(languages.one_of(part.characters), TextLanguages::kAnything);
  return languages.sequence(before, behind);
}

SchemaWriter::Rule SchemaWriter::extra_member(const JsonSchema& schema, bool counts, const KeyPart& part) {
  std::vector<std::string> taken;
  for (const auto& item : properties_of(schema).items()) taken.push_back(item.key());
  if (counts) {  // repeating a required name would not add a member
    for (std::string& key : required_of(schema)) taken.push_back(std::move(key));
  }
  const bool named = schema.contains("propertyNames") && schema["propertyNames"] != true;
  if (named || !part.characters.empty() || schema.contains("patternProperties"))
    return keys_by_language(schema, taken, part);
  const Rule inside = value_at("additionalProperties", others_of(schema));
  if (!inside) return {};
  return node::sequence("\"", text_apart_from(taken), "\":", space(), *inside);
}

// Additional members with patternProperties or propertyNames: for each combination of matching patterns, the keys and
// the schema of the value.
SchemaWriter::Rule SchemaWriter::keys_by_language(const JsonSchema& schema, const std::vector<std::string>& taken,
                                                  const KeyPart& part) {
  const JsonSchema patterns = schema.value("patternProperties", JsonSchema::object());
  if (!patterns.is_object()) fail(ErrorKind::Usage, "the schema's patternProperties are not an object");
  if (patterns.size() > kMostPatterns || taken.size() > kMostApart) return {};
  TextLanguages languages(builder_);
  std::vector<TextLanguages::Id> texts;
  for (const std::string& key : taken) texts.push_back(languages.text(key));
  std::vector<TextLanguages::Id> all = {languages.inverse(languages.either(std::move(texts)))};
  if (schema.contains("propertyNames")) all.push_back(names_language(schema["propertyNames"], languages));
  if (!part.characters.empty()) all.push_back(language_of_part(part, languages));
  struct Way {
    TextLanguages::Id keys;
    JsonSchema said;
  };
  std::vector<Way> ways = {{languages.both(std::move(all)), JsonSchema::array()}};
  for (const auto& item : patterns.items()) {
    std::vector<Way> finer;
    for (Way& way : ways) {
      JsonSchema more = way.said;
      more.push_back(item.value());
      finer.push_back(
          {languages.both({way.keys, pattern_language(item.key(), RegexUse::JsonString, languages)}), more});
      finer.push_back({languages.both({way.keys, avoided_language(item.key(), languages)}), std::move(way.said)});
    }
    std::erase_if(finer, [&](const Way& way) { return !has_json_text(languages, way.keys); });
    ways = std::move(finer);
  }
  std::vector<GrammarNode> members;
  for (const Way& way : ways) {
    const JsonSchema said = way.said.empty()       ? others_of(schema)
                            : way.said.size() == 1 ? way.said[0]
                                                   : JsonSchema{{"allOf", way.said}};
    const Rule inside = value_at(way.said.empty() ? "additionalProperties" : "patternProperties", said);
    const Rule keys = inside ? json_text_rule(languages, way.keys, {}, builder_) : Rule();
    if (keys) members.push_back(node::sequence("\"", *keys, "\":", space(), *inside));
  }
  if (members.empty()) return {};
  return builder_.add(*node::choice_of(std::move(members)));
}

// The language of propertyNames.
TextLanguages::Id SchemaWriter::names_language(const JsonSchema& names, TextLanguages& languages) {
  std::vector<TextLanguages::Id> ways;
  for (const JsonSchema& way : document_.alternatives({{"allOf", JsonSchema::array({{{"type", "string"}}, names})}})) {
    refuse_unsupported(way);
    if (way.contains("enum") || way.contains("const")) {
      for (const JsonSchema& value : allowed_values(way, builder_))
        ways.push_back(languages.text(value.get<std::string>()));
      continue;
    }
    const Lengths lengths{count_of(way, "minLength", 0), count_of(way, "maxLength", -1)};
    TextRules rules{texts_of(way, "pattern"), texts_of(way, "$avoid"), excepted_texts(way), lengths};
    for (const std::string& format : known_formats(way)) rules.patterns.push_back(string_format_regex(format, lengths));
    ways.push_back(languages.both({language_of(rules, languages), length_language(lengths, languages)}));
  }
  return languages.either(std::move(ways));
}

// A text that differs from all listed ones: a walk in their trie that leaves it. Escapes are not allowed, so that each
// text has one spelling.
GrammarNode SchemaWriter::text_apart_from(const std::vector<std::string>& texts) {
  const GrammarNode rest = builder_.add(node::any_number(node::one_of(kPlain)));
  if (texts.empty()) return rest;
  struct Node {
    std::map<uint32_t, size_t> next;
    bool listed = false;
  };
  std::vector<Node> nodes(1);
  for (const std::string& text : texts) {
    size_t at = 0;
    for (const uint32_t code : code_points(text)) {
      const auto [found, fresh] = nodes[at].next.try_emplace(code, nodes.size());
      at = found->second;
      if (fresh) nodes.emplace_back();
    }
    nodes[at].listed = true;
  }
  std::vector<GrammarNode> rules(nodes.size());
  for (size_t i = nodes.size(); i-- > 0;) {  // children come after their parents
    CodeSet taken;
    std::vector<GrammarNode> ways;
    if (!nodes[i].listed) ways.push_back(node::empty());
    for (const auto& [code, next] : nodes[i].next) {
      taken.add(code, code);
      if (kPlain.contains(code)) ways.push_back(node::sequence(node::one_of({{code, code}}), rules[next]));
    }
    ways.push_back(node::sequence(node::one_of(kPlain.without(taken)), rest));
    rules[i] = builder_.add(*node::choice_of(std::move(ways)));
  }
  return rules[0];
}

GrammarNode SchemaWriter::member_list(const std::vector<Member>& members, const Rule& extra, int64_t least_extra,
                                      int64_t most_extra) {
  const GrammarNode comma = node::sequence(",", space());
  // The members from a position on, if no member precedes them (alone) and if one does (after).
  GrammarNode alone = node::empty(), after = node::empty();
  if (extra) {
    const GrammarNode one = builder_.add(*extra), next = builder_.add(node::sequence(comma, one));
    after = node::repeat(next, least_extra, most_extra);
    const int64_t most_next = most_extra < 0 ? -1 : most_extra - 1;
    alone = node::sequence(one, node::repeat(next, std::max<int64_t>(least_extra - 1, 0), most_next));
    if (least_extra == 0) alone = node::maybe(std::move(alone));
  }
  for (size_t i = members.size(); i-- > 0;) {
    const GrammarNode member = builder_.add(members[i].text);
    const auto or_else = [&](GrammarNode with, const GrammarNode& without) {
      return builder_.add(members[i].required ? std::move(with) : node::choice(std::move(with), without));
    };
    GrammarNode next_after = or_else(node::sequence(comma, member, after), after);
    alone = or_else(node::sequence(member, after), alone);
    after = std::move(next_after);
  }
  return alone;
}

}  // namespace millrace
