// uniqueItems. A grammar cannot compare items, so the values are partitioned into disjoint parts (listed values, or
// values with different beginnings), and each part gives at most one item, in a fixed order.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_text.h"
#include "grammar/schema/schema_values.h"
#include "grammar/schema/schema_writer.h"

namespace millrace {
namespace {

constexpr int64_t kMostDistinct = 64;  // listed values
constexpr int kDeepestListed = 4;      // objects in listed objects
constexpr size_t kMostShared = 1024;   // listed values of all prefixItems
constexpr size_t kManyParts =
    1024;  // bytes of a schema; larger schemas get fewer parts, since each part repeats the schema
constexpr size_t kTooManyParts = 16 << 10;

// Rewrites integers between close bounds as an enum.
JsonSchema with_integers_listed(JsonSchema schema) {
  if (schema.value("type", JsonSchema()) != "integer" || schema.size() != 3) return schema;
  const JsonSchema least = schema.value("minimum", JsonSchema()), most = schema.value("maximum", JsonSchema());
  if (!least.is_number_integer() || !most.is_number_integer()) return schema;
  const auto first = least.get<int64_t>(), last = most.get<int64_t>();
  if (std::abs(least.get<double>()) > 1e15 || std::abs(most.get<double>()) > 1e15 || last - first >= kMostDistinct)
    return schema;
  schema["enum"] = JsonSchema::array();
  for (int64_t value = first; value <= last; ++value) schema["enum"].push_back(value);
  return schema;
}

// Strings partitioned by their first character, or the first one behind a common beginning.
std::vector<JsonSchema> parts_of_texts(bool many, const std::string& begin = "") {
  std::vector<JsonSchema> parts;
  if (begin.empty()) parts.push_back({{"type", "string"}, {"maxLength", 0}});
  const auto add = [&](const std::string& set) {
    parts.push_back({{"type", "string"}, {"pattern", "^" + begin + "[" + set + "]"}});
  };
  if (many) {
    for (char digit = '0'; digit <= '9'; ++digit) add({digit});
    for (char letter = 'a'; letter <= 'z'; ++letter) add({letter, static_cast<char>(letter - 'a' + 'A')});
  } else {
    for (const char* set :
         {"0-4", "5-9", "a-cA-C", "d-fD-F", "g-iG-I", "j-lJ-L", "m-oM-O", "p-rP-R", "s-uS-U", "v-zV-Z"})
      add(set);
  }
  add("^0-9a-zA-Z");
  return parts;
}

// Numbers partitioned by first digit and number of digits, or into equal intervals between bounds.
std::vector<JsonSchema> parts_of_numbers(const JsonSchema& items, bool many) {
  std::vector<JsonSchema> parts;
  const auto add = [&](double from, double to) {
    parts.push_back({{"type", "number"}, {"minimum", from}, {"exclusiveMaximum", to}});
  };
  const auto bound = [&](const char* keyword) {
    const JsonSchema said = items.is_object() ? items.value(keyword, JsonSchema()) : JsonSchema();
    return said.is_number() ? said.get<double>() : NAN;
  };
  const double least = std::fmax(bound("minimum"), bound("exclusiveMinimum"));
  const double most = std::fmin(bound("maximum"), bound("exclusiveMaximum"));
  if (!std::isnan(least) && !std::isnan(most) && most > least && most - least < 1e9 && std::abs(least) < 1e9) {
    const int count = many ? 32 : 8;
    const double step = std::max(std::ceil((most - least) / count), 1.0);
    for (double from = std::floor(least); from <= most; from += step) add(from, from + step);
    return parts;
  }
  parts.push_back({{"type", "number"}, {"exclusiveMaximum", 0}});
  add(0, 1);
  double unit = 1;
  for (int digits = 1; digits <= (many ? 6 : 2); ++digits, unit *= 10) {
    for (int first = 1; first <= 9; first += many ? 1 : 3) add(first * unit, (first + (many ? 1 : 3)) * unit);
  }
  parts.push_back({{"type", "number"}, {"minimum", unit}});
  return parts;
}

// Assigns each listed value to one array position: a matching first, so that every position gets a value if possible,
// then the remaining values.
std::vector<JsonSchema> share_values(const std::vector<std::vector<JsonSchema>>& lists) {
  std::vector<nlohmann::json> values;  // nlohmann::json compares like validators: member order is ignored
  std::vector<size_t> owner;           // position by value
  const size_t nobody = lists.size();
  const auto index_of = [&](const JsonSchema& value) {
    const nlohmann::json plain(value);
    const auto at = static_cast<size_t>(std::find(values.begin(), values.end(), plain) - values.begin());
    if (at == values.size()) values.push_back(plain), owner.push_back(nobody);
    return at;
  };
  std::vector<bool> asked;
  // Finds a value for the position, along an augmenting path.
  const auto take = [&](const auto& self, size_t place) -> bool {
    for (const JsonSchema& value : lists[place]) {
      const size_t index = index_of(value);
      asked.resize(values.size());
      if (asked[index]) continue;
      asked[index] = true;
      if (owner[index] != nobody && !self(self, owner[index])) continue;
      owner[index] = place;
      return true;
    }
    return false;
  };
  for (size_t place = 0; place < lists.size(); ++place) {
    asked.assign(values.size(), false);
    take(take, place);
  }
  std::vector<JsonSchema> shares(lists.size(), JsonSchema::array());
  for (size_t place = 0; place < lists.size(); ++place) {
    for (const JsonSchema& value : lists[place]) {
      const size_t index = index_of(value);
      if (owner[index] == nobody) owner[index] = place;
      if (owner[index] == place) shares[place].push_back(value);
    }
  }
  return shares;
}

// Non-empty arrays differ by their first item.
bool tells_by_first_item(const JsonSchema& array) {
  const JsonSchema least = array.value("minItems", JsonSchema());
  return array.value("type", JsonSchema()) == "array" && least.is_number() && least >= 1;
}

}  // namespace

// All objects of a schema whose members have listed values. Empty: the schema has others, or too many.
std::vector<JsonSchema> SchemaWriter::listed_objects(const JsonSchema& schema, int depth) const {
  if (depth > kDeepestListed) return {};  // a schema may contain itself
  if (schema.value("type", JsonSchema()) != "object" || !schema.contains("properties")) return {};
  for (const auto& item : schema.items()) {
    const std::string& key = item.key();
    if (key == "additionalProperties" && item.value() == false) continue;
    if (key != "type" && key != "properties" && key != "required") return {};
  }
  const JsonSchema required = schema.value("required", JsonSchema::array());
  std::vector<JsonSchema> objects = {JsonSchema::object()};
  for (const auto& member : schema["properties"].items()) {
    const std::vector<JsonSchema> values = listed_values(member.value(), depth + 1);
    if (values.empty()) return {};
    const bool needed = std::find(required.begin(), required.end(), member.key()) != required.end();
    std::vector<JsonSchema> more;
    for (const JsonSchema& object : objects) {
      for (const JsonSchema& value : values) more.push_back(object), more.back()[member.key()] = value;
      if (!needed) more.push_back(object);
    }
    if (std::ssize(more) > kMostDistinct) return {};
    objects = std::move(more);
  }
  for (const JsonSchema& key : required) {
    if (!key.is_string() || !schema["properties"].contains(key.get<std::string>())) return {};
  }
  return objects;
}

std::vector<JsonSchema> SchemaWriter::listed_values(const JsonSchema& items, int depth) const {
  std::vector<JsonSchema> values;
  if (!items.is_object()) return values;
  for (JsonSchema one : document_.alternatives(items)) {
    if (std::vector<JsonSchema> objects = listed_objects(one, depth); !objects.empty()) {
      values.insert(values.end(), objects.begin(), objects.end());
      continue;
    }
    if (one.value("type", JsonSchema()) == "boolean" && !one.contains("enum") && !one.contains("const"))
      one["enum"] = JsonSchema::array({false, true});
    if (!one.contains("enum") && !one.contains("const")) one = with_integers_listed(std::move(one));
    if (!one.contains("enum") && !one.contains("const")) return {};
    for (const JsonSchema& value : allowed_values(one, builder_)) {
      if (static_cast<int64_t>(values.size()) > kMostDistinct) return values;
      // nlohmann::json compares like validators: the order of members is ignored.
      const nlohmann::json plain(value);
      const bool known =
          std::any_of(values.begin(), values.end(), [&](const JsonSchema& v) { return nlohmann::json(v) == plain; });
      if (!known) values.push_back(value);
    }
  }
  return values;
}

// Disjoint schemas that partition the items. Objects are partitioned by a required member.
std::vector<JsonSchema> SchemaWriter::distinct_parts(const JsonSchema& items) const {
  const size_t size = json_text(items).size();
  std::vector<JsonSchema> parts = {{{"type", "null"}}, {{"const", true}}, {{"const", false}}, {{"type", "array"}}};
  const std::vector<JsonSchema> ways = document_.alternatives(items);
  const bool plain = ways.size() == 1 && !ways[0].contains("pattern") && !ways[0].contains("format");
  const JsonSchema format = ways.size() == 1 ? ways[0].value("format", JsonSchema()) : JsonSchema();
  const bool address = format == "uri" || format == "iri";
  for (JsonSchema& part : parts_of_texts(plain, address ? "https://" : "")) parts.push_back(std::move(part));
  for (JsonSchema& part : parts_of_numbers(ways.size() == 1 ? ways[0] : JsonSchema(), true))
    parts.push_back(std::move(part));
  if (ways.size() == 1 && size < kTooManyParts && tells_by_first_item(ways[0])) {
    parts.resize(3);  // drop {"type": "array"}
    std::vector<JsonSchema> values = parts_of_texts(size < kManyParts);
    for (JsonSchema& value : parts_of_numbers({}, size < kManyParts)) values.push_back(std::move(value));
    for (JsonSchema& value : values)
      parts.push_back({{"type", "array"}, {"prefixItems", JsonSchema::array({std::move(value)})}, {"items", true}});
    return parts;
  }
  const std::string key = ways.size() == 1 && size < kTooManyParts ? telling_member(ways[0]) : "";
  if (key.empty()) {
    parts.push_back({{"type", "object"}});
    return parts;
  }
  const bool many = size < kManyParts;
  std::vector<JsonSchema> values;
  for (const JsonSchema& value : listed_values(ways[0]["properties"][key])) values.push_back({{"const", value}});
  if (values.empty()) {
    values = parts_of_texts(many);
    for (JsonSchema& value : parts_of_numbers({}, many)) values.push_back(std::move(value));
  }
  const JsonSchema required = JsonSchema::array({key});
  for (JsonSchema& value : values)
    parts.push_back({{"type", "object"}, {"properties", {{key, std::move(value)}}}, {"required", required}});
  return parts;
}

std::string SchemaWriter::telling_member(const JsonSchema& object) const {
  const JsonSchema required = object.value("required", JsonSchema::array()),
                   properties = object.value("properties", JsonSchema());
  if (!required.is_array() || !properties.is_object()) return "";
  std::vector<std::string> keys;  // required ones first; an optional one is then always written
  for (const JsonSchema& key : required) {
    if (key.is_string() && properties.contains(key.get<std::string>())) keys.push_back(key.get<std::string>());
  }
  for (const auto& item : properties.items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) keys.push_back(item.key());
  }
  std::string best;
  size_t most = 1;  // listed values of the best key
  for (const std::string& key : keys) {
    const std::vector<JsonSchema> ways = document_.alternatives(properties[key]);
    const JsonSchema type = ways.size() == 1 ? ways[0].value("type", JsonSchema()) : JsonSchema();
    const std::vector<JsonSchema> values = listed_values(properties[key]);
    if (values.empty() && (type == "string" || type == "integer" || type == "number")) return key;
    if (values.size() > most && std::ssize(values) <= kMostDistinct) most = values.size(), best = key;
  }
  return best;
}

// The rule of each part.
std::vector<GrammarNode> SchemaWriter::distinct_rules(const JsonSchema& items, bool needed) {
  std::vector<GrammarNode> parts;
  const std::vector<JsonSchema> values = listed_values(items);
  if (!document_.has_huge_integers() && !values.empty() && std::ssize(values) <= kMostDistinct) {
    for (const JsonSchema& value : values) parts.push_back(node::literal(json_text(value)));
    return parts;
  }
  const auto write = [&](const JsonSchema& part) {
    return value(items == true ? part : JsonSchema{{"allOf", JsonSchema::array({items, part})}});
  };
  for (const JsonSchema& part : distinct_parts(items)) {
    if (const Rule rule = needed ? write(part) : optionally([&] { return write(part); })) parts.push_back(*rule);
  }
  return parts;
}

SchemaWriter::Rule SchemaWriter::distinct_items(const JsonSchema& items, const DistinctCounts& counts) {
  std::vector<GrammarNode> parts;
  int64_t contained = 0;  // number of parts that match `contains`; they come first
  const int64_t least = std::max(counts.least, counts.least_contained);
  if (counts.contained) {
    parts = distinct_rules({{"allOf", JsonSchema::array({items, *counts.contained})}}, counts.least_contained > 0);
    if (counts.most_contained >= 0 && std::ssize(parts) > counts.most_contained)
      parts.resize(static_cast<size_t>(counts.most_contained));
    contained = std::ssize(parts);
    if (contained < counts.least_contained && counts.least_contained > 1)
      fail(ErrorKind::Usage, "the schema uses \"uniqueItems\" with more contained items than can be told apart ({})",
           contained);
    if (contained < counts.least_contained) return {};
    const JsonSchema others = {{"allOf", JsonSchema::array({items, {{"not", *counts.contained}}})}};
    for (GrammarNode& part : distinct_rules(others, least > counts.least_contained)) parts.push_back(std::move(part));
  } else {
    parts = distinct_rules(items, least > 0);
  }
  const auto count = std::ssize(parts);
  if (least > count && least > 1)
    fail(ErrorKind::Usage, "the schema uses \"uniqueItems\" with more items than can be told apart ({})", count);
  if (least > count) return {};
  const int64_t most = counts.most < 0 || counts.most > count ? count : counts.most;
  // Counts the items taken: up to the maximum, or up to the minimum if the maximum does not bind.
  const int64_t counted = most < count ? most : std::max<int64_t>(least, 1);
  const auto next = [&](int64_t taken) {
    return static_cast<size_t>(most < count ? taken + 1 : std::min(taken + 1, counted));
  };
  std::vector<Rule> rest(static_cast<size_t>(counted) + 1);  // by items taken: the items from the parts that are left
  for (int64_t taken = least; taken <= counted; ++taken) rest[static_cast<size_t>(taken)] = node::empty();
  for (int64_t i = count - 1; i >= 0; --i) {
    if (i + 1 == contained) {
      for (int64_t taken = 0; taken < counts.least_contained; ++taken) rest[static_cast<size_t>(taken)].reset();
    }
    std::vector<Rule> before = rest;
    for (int64_t taken = 0; taken <= std::min(counted, i); ++taken) {
      const Rule with = next(taken) <= static_cast<size_t>(counted) ? rest[next(taken)] : Rule();
      if (!with) continue;
      GrammarNode comma = taken > 0 || counts.behind ? node::sequence(",", space()) : node::empty();
      GrammarNode take = node::sequence(std::move(comma), parts[static_cast<size_t>(i)], *with);
      Rule& here = before[static_cast<size_t>(taken)];
      here = builder_.add(here ? node::choice(std::move(take), *here) : std::move(take));
    }
    rest = std::move(before);
  }
  return rest.front();
}

// Gives each of prefixItems, and the further items together, disjoint parts of all values.
JsonSchema SchemaWriter::with_distinct_places(JsonSchema array, bool more) const {
  JsonSchema prefix = array["prefixItems"];
  const JsonSchema items = array.value("items", JsonSchema(true));
  std::vector<JsonSchema> parts = distinct_parts(true);
  std::vector<std::vector<JsonSchema>> lists(prefix.size());
  size_t places = more ? 1 : 0, values = 0;  // positions without a list; values of all lists
  for (size_t i = 0; i < prefix.size() && values <= kMostShared; ++i) {
    lists[i] = listed_values(prefix[i]);
    if (std::ssize(lists[i]) > kMostDistinct) lists[i].clear();
    values += lists[i].size();
    places += lists[i].empty();
  }
  if (places > parts.size() || values > kMostShared)
    fail(ErrorKind::Usage, "the schema uses \"uniqueItems\" beside more prefixItems than can be told apart");
  const std::vector<JsonSchema> shares = share_values(lists);
  JsonSchema taken = JsonSchema::array();  // listed values, each reserved for one position
  for (size_t i = 0; i < prefix.size(); ++i) {
    if (lists[i].empty()) continue;
    prefix[i] = shares[i].empty() ? JsonSchema(false) : JsonSchema{{"enum", shares[i]}};
    for (const JsonSchema& value : shares[i]) taken.push_back(value);
  }
  size_t index = 0;
  const auto place = [&](const JsonSchema& said) {
    JsonSchema own = JsonSchema::array(), all = JsonSchema::array({said});
    for (size_t j = 0; j < parts.size(); ++j) {
      if (j % places == index) own.push_back(parts[j]);
    }
    ++index;
    if (places > 1) all.push_back({{"anyOf", std::move(own)}});
    if (!taken.empty()) all.push_back({{"not", {{"enum", taken}}}});
    return JsonSchema{{"allOf", std::move(all)}};
  };
  for (size_t i = 0; i < prefix.size(); ++i) {
    if (lists[i].empty()) prefix[i] = place(prefix[i]);
  }
  if (more) array["items"] = place(items);
  array["prefixItems"] = std::move(prefix);
  return array;
}

}  // namespace millrace
