// Arrays of a schema: prefixItems, items and contains.
#include <algorithm>

#include "base/error.h"
#include "grammar/schema/schema_fields.h"
#include "grammar/schema/schema_writer.h"

namespace millrace {
namespace {

constexpr int64_t kMostContained = 64;

JsonSchema all_of(std::initializer_list<JsonSchema> parts) {
  JsonSchema all = JsonSchema::array();
  for (const JsonSchema& part : parts) {
    if (part != true) all.push_back(part);
  }
  if (all.empty()) return true;
  return all.size() == 1 ? all[0] : JsonSchema{{"allOf", std::move(all)}};
}

// Rewrites items lists of older drafts as prefixItems.
JsonSchema with_prefix_items(JsonSchema schema) {
  if (!schema.contains("items") || !schema["items"].is_array()) return schema;
  schema["prefixItems"] = JsonSchema(schema["items"]);
  schema.erase("items");
  if (schema.contains("additionalItems")) schema["items"] = JsonSchema(schema["additionalItems"]);
  schema.erase("additionalItems");
  return schema;
}

struct Contained {
  JsonSchema what;
  int64_t least, most;
};

// Removes `contains` and its counts, also those of merged schemas, and returns them.
std::vector<Contained> take_contained(JsonSchema& schema) {
  std::vector<Contained> all;
  const auto add = [&](const JsonSchema& one) {
    if (!one.contains("contains")) return;
    const Contained contained{one["contains"], count_of(one, "minContains", 1), count_of(one, "maxContains", -1)};
    if (contained.least > kMostContained)
      fail(ErrorKind::Usage, "the schema has a minContains of more than {}, which cannot be enforced", kMostContained);
    if (contained.least > 0 || contained.most >= 0) all.push_back(contained);
  };
  add(schema);
  for (const JsonSchema& one : schema.value("$contains", JsonSchema::array())) add(one);
  for (const char* keyword : {"contains", "minContains", "maxContains", "$contains"}) schema.erase(keyword);
  return all;
}

// Puts the contained items directly behind prefixItems. With maxContains, no other item may match.
JsonSchema with_contained(JsonSchema schema, const std::vector<Contained>& all) {
  const JsonSchema items = schema.value("items", JsonSchema(true));
  JsonSchema prefix = schema.value("prefixItems", JsonSchema::array()), others = items;
  for (const Contained& one : all) {
    if (one.most < 0) continue;
    if (all.size() > 1)
      fail(ErrorKind::Usage, "the schema has a maxContains beside another contains, which cannot be enforced");
    const JsonSchema other = {{"not", one.what}};
    for (JsonSchema& first : prefix) first = all_of({first, other});
    others = all_of({items, other});
  }
  for (const Contained& one : all) {
    for (int64_t i = 0; i < one.least; ++i) prefix.push_back(all_of({one.what, items}));
  }
  schema["minItems"] = std::max<int64_t>(count_of(schema, "minItems", 0), std::ssize(prefix));
  schema["prefixItems"] = std::move(prefix);
  schema["items"] = std::move(others);
  return schema;
}

// Alternatively, one of prefixItems is the contained item.
JsonSchema with_contained_at(JsonSchema schema, const Contained& one, size_t place) {
  JsonSchema& prefix = schema["prefixItems"];
  const JsonSchema other = one.most < 0 ? JsonSchema(true) : JsonSchema{{"not", one.what}};
  for (size_t i = 0; i < prefix.size(); ++i) prefix[i] = all_of({prefix[i], i == place ? one.what : other});
  if (one.most >= 0) schema["items"] = all_of({schema.value("items", JsonSchema(true)), other});
  schema["minItems"] = std::max(count_of(schema, "minItems", 0), static_cast<int64_t>(place) + 1);
  return schema;
}

}  // namespace

SchemaWriter::Rule SchemaWriter::array(const JsonSchema& given) {
  JsonSchema schema = with_prefix_items(given);
  if (!schema.value("prefixItems", JsonSchema::array()).is_array())
    fail(ErrorKind::Usage, "the schema's prefixItems is not a list");
  const std::vector<Contained> contained = take_contained(schema);
  for (const Contained& one : contained) {
    if (one.most >= 0 && one.least > one.most) return {};
  }
  if (contained.empty()) return plain_array(schema);
  const size_t first = schema.value("prefixItems", JsonSchema::array()).size();
  if (schema.value("uniqueItems", JsonSchema(false)) == true && first == 0 && contained.size() == 1) {
    const Contained& one = contained.front();
    return distinct_array(schema, &one.what, one.least, one.most);
  }
  std::vector<JsonSchema> ways = {with_contained(schema, contained)};
  for (size_t place = 0; place < first && contained.size() == 1 && contained[0].least == 1; ++place)
    ways.push_back(with_contained_at(schema, contained[0], place));
  return optional_choice(ways);
}

// Alternatives that match nothing are left out.
SchemaWriter::Rule SchemaWriter::optional_choice(const std::vector<JsonSchema>& arrays) {
  std::vector<GrammarNode> ways;
  for (const JsonSchema& one : arrays) {
    if (Rule rule = plain_array(one)) ways.push_back(std::move(*rule));
  }
  return node::choice_of(std::move(ways));
}

SchemaWriter::Rule SchemaWriter::plain_array(const JsonSchema& given) {
  const int64_t least = count_of(given, "minItems", 0);
  int64_t most = count_of(given, "maxItems", -1);
  const auto size = std::ssize(given.value("prefixItems", JsonSchema::array()));
  if (size > 0 && !given.contains("items") && most < 0) most = std::max<int64_t>(size, least);
  const bool distinct = given.value("uniqueItems", JsonSchema(false)) == true && (most < 0 || most > 1);
  if (distinct && size == 0) return distinct_array(given, nullptr, 0, -1);
  const JsonSchema schema = distinct ? with_distinct_places(given, most < 0 || most > size) : given;
  const JsonSchema prefix = schema.value("prefixItems", JsonSchema::array()),
                   items = schema.value("items", JsonSchema(true));
  std::vector<Rule> first;
  for (const JsonSchema& item : prefix) {
    const bool needed = std::ssize(first) < least;
    const auto write = [&] { return value_at("prefixItems/" + std::to_string(first.size()), item); };
    first.push_back(needed ? write() : optionally(write));
    if (!first.back()) most = std::min<int64_t>(most < 0 ? size : most, std::ssize(first) - 1);
  }
  GrammarNode tail = node::empty();
  if (most < 0 || most > size) {
    const auto write = [&] {
      return further_items(items, distinct, std::max<int64_t>(least - size, 0), most < 0 ? -1 : most - size, size > 0);
    };
    Rule more = least > size ? write() : optionally(write);
    if (!more) most = most < 0 ? size : std::min<int64_t>(most, size);
    if (more) tail = std::move(*more);
  }
  if (most >= 0 && least > most) return {};
  return node::sequence("[", space(), array_tail(first, std::move(tail), least, most), space(), "]");
}

// behind: other items come before them.
SchemaWriter::Rule SchemaWriter::further_items(const JsonSchema& items, bool distinct, int64_t least, int64_t most,
                                               bool behind) {
  if (distinct) return distinct_items(items, {.least = least, .most = most, .behind = behind});
  const Rule one = value_at("items", items);
  if (!one) return {};
  const GrammarNode next = builder_.add(node::sequence(",", space(), *one));
  if (behind) return node::repeat(next, least, most);
  GrammarNode all = node::sequence(*one, node::repeat(next, std::max<int64_t>(least - 1, 0), most < 0 ? -1 : most - 1));
  return least > 0 ? all : node::maybe(std::move(all));
}

SchemaWriter::Rule SchemaWriter::distinct_array(const JsonSchema& schema, const JsonSchema* contained,
                                                int64_t least_contained, int64_t most_contained) {
  const int64_t least = count_of(schema, "minItems", 0), most = count_of(schema, "maxItems", -1);
  if (most >= 0 && std::max(least, least_contained) > most) return {};
  path_.emplace_back("items");
  const Rule items = distinct_items(schema.value("items", JsonSchema(true)), {.least = least,
                                                                              .most = most,
                                                                              .behind = false,
                                                                              .contained = contained,
                                                                              .least_contained = least_contained,
                                                                              .most_contained = most_contained});
  path_.pop_back();
  if (!items) return {};
  return node::sequence("[", space(), *items, space(), "]");
}

// Builds the items from the last to the first.
GrammarNode SchemaWriter::array_tail(const std::vector<Rule>& first, GrammarNode tail, int64_t least, int64_t most) {
  const int64_t size = std::ssize(first);
  for (int64_t i = std::min(size, most < 0 ? size : most) - 1; i >= 0; --i) {
    GrammarNode comma = i > 0 ? node::sequence(",", space()) : node::empty();
    GrammarNode item = node::sequence(std::move(comma), *first[static_cast<size_t>(i)], std::move(tail));
    tail = builder_.add(i < least ? std::move(item) : node::maybe(std::move(item)));
  }
  return tail;
}

}  // namespace millrace
