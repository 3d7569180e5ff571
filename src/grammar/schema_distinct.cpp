// Arrays without duplicates. No grammar can compare items, so each comes from a part of all values of its own, and the
// parts are taken in their order: the values of a list, or values that begin unlike each other.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_text.h"
#include "grammar/schema_values.h"
#include "grammar/schema_writer.h"

namespace millrace {
namespace {

constexpr int64_t kMostDistinct = 64;  // values that are listed
constexpr size_t kMostShared = 1024;   // values that first items list together
constexpr size_t kManyParts = 1024;    // of a schema's text: with more of it each part is a cost
constexpr size_t kTooManyParts = 16 << 10;

// Integers between close bounds as a list.
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

// By their first characters, or those behind what all of them begin with.
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

// By their first digit and how many digits there are, or by equal steps between bounds.
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

// Values that places list, each for one place alone: one for each as far as that is possible, then what is left.
std::vector<JsonSchema> share_values(const std::vector<std::vector<JsonSchema>>& lists) {
  std::vector<nlohmann::json> values;  // as equal as validators take them
  std::vector<size_t> owner;           // of each value
  const size_t nobody = lists.size();
  const auto index_of = [&](const JsonSchema& value) {
    const nlohmann::json plain(value);
    const auto at = static_cast<size_t>(std::find(values.begin(), values.end(), plain) - values.begin());
    if (at == values.size()) values.push_back(plain), owner.push_back(nobody);
    return at;
  };
  std::vector<bool> asked;
  // Takes a value for the place, from another that can have one instead.
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

// Arrays that have an item.
bool tells_by_first_item(const JsonSchema& array) {
  const JsonSchema least = array.value("minItems", JsonSchema());
  return array.value("type", JsonSchema()) == "array" && least.is_number() && least >= 1;
}

}  // namespace

std::vector<JsonSchema> SchemaWriter::listed_values(const JsonSchema& items) const {
  std::vector<JsonSchema> values;
  if (!items.is_object()) return values;
  for (JsonSchema one : document_.alternatives(items)) {
    if (one.value("type", JsonSchema()) == "boolean" && !one.contains("enum") && !one.contains("const"))
      one["enum"] = JsonSchema::array({false, true});
    if (!one.contains("enum") && !one.contains("const")) one = with_integers_listed(std::move(one));
    if (!one.contains("enum") && !one.contains("const")) return {};
    for (const JsonSchema& value : allowed_values(one, builder_)) {
      if (static_cast<int64_t>(values.size()) > kMostDistinct) return values;
      // As equal as validators take them: whatever the order of an object's members.
      const nlohmann::json plain(value);
      const bool known =
          std::any_of(values.begin(), values.end(), [&](const JsonSchema& v) { return nlohmann::json(v) == plain; });
      if (!known) values.push_back(value);
    }
  }
  return values;
}

// Schemas that no value matches two of. Objects are told apart by a member that all of them have.
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
    parts.resize(3);  // no other arrays
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
  std::vector<JsonSchema> values = parts_of_texts(many);
  for (JsonSchema& value : parts_of_numbers({}, many)) values.push_back(std::move(value));
  for (JsonSchema& value : values) parts.push_back({{"type", "object"}, {"properties", {{key, std::move(value)}}}});
  return parts;
}

std::string SchemaWriter::telling_member(const JsonSchema& object) const {
  const JsonSchema required = object.value("required", JsonSchema()),
                   properties = object.value("properties", JsonSchema());
  if (!required.is_array() || !properties.is_object()) return "";
  for (const JsonSchema& key : required) {
    if (!key.is_string() || !properties.contains(key.get<std::string>())) continue;
    const std::vector<JsonSchema> ways = document_.alternatives(properties[key.get<std::string>()]);
    const JsonSchema type = ways.size() == 1 ? ways[0].value("type", JsonSchema()) : JsonSchema();
    const bool listed = ways.size() == 1 && (ways[0].contains("enum") || ways[0].contains("const"));
    if (!listed && (type == "string" || type == "integer" || type == "number")) return key.get<std::string>();
  }
  return "";
}

// What stands for an item of each part.
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
  int64_t contained = 0;  // parts that match what must be contained: they come first
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
  // Items taken are counted up to the most, or up to the least where there is room for all.
  const int64_t counted = most < count ? most : std::max<int64_t>(least, 1);
  const auto next = [&](int64_t taken) {
    return static_cast<size_t>(most < count ? taken + 1 : std::min(taken + 1, counted));
  };
  std::vector<Rule> rest(static_cast<size_t>(counted) + 1);  // by items taken: what may follow from the parts left
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

// The first items of an array without duplicates, and the others: each with a part of all values for itself.
JsonSchema SchemaWriter::with_distinct_places(JsonSchema array, bool more) const {
  JsonSchema prefix = array["prefixItems"];
  const JsonSchema items = array.value("items", JsonSchema(true));
  std::vector<JsonSchema> parts = distinct_parts(true);
  std::vector<std::vector<JsonSchema>> lists(prefix.size());
  size_t places = more ? 1 : 0, values = 0;  // without a list; of lists
  for (size_t i = 0; i < prefix.size() && values <= kMostShared; ++i) {
    lists[i] = listed_values(prefix[i]);
    if (std::ssize(lists[i]) > kMostDistinct) lists[i].clear();
    values += lists[i].size();
    places += lists[i].empty();
  }
  if (places > parts.size() || values > kMostShared)
    fail(ErrorKind::Usage, "the schema uses \"uniqueItems\" beside more prefixItems than can be told apart");
  const std::vector<JsonSchema> shares = share_values(lists);
  JsonSchema taken = JsonSchema::array();  // listed values, which are one place's alone
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
