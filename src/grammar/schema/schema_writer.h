// Builds the rules for the values of a schema.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "grammar/pattern/text_language.h"
#include "grammar/rules.h"
#include "grammar/schema/schema_document.h"

namespace millrace {

class SchemaWriter {
 public:
  SchemaWriter(const SchemaDocument& document, RuleBuilder& builder) : document_(document), builder_(builder) {}

  // A reference to the rule for the values of the schema; nullopt: the schema has no finite value.
  std::optional<GrammarNode> value(const JsonSchema& schema);

  GrammarNode any_value();
  GrammarNode any_object();

  // The place in the schema at which an error was thrown: "#/properties/tags".
  std::string path() const;

 private:
  using Rule = std::optional<GrammarNode>;

  // Recursion without an end, such as an object that requires itself, matches nothing. `open_` holds the schemas
  // between the last optional part and here: a schema that contains itself through them is such a recursion.
  template <class Write>
  auto optionally(Write&& write) {
    std::set<std::string> outer = std::exchange(open_, {});
    auto result = write();
    open_ = std::move(outer);
    return result;
  }

  // value() of a part of the current schema; path() includes `place` if it throws.
  Rule value_at(std::string place, const JsonSchema& schema) {
    path_.push_back(std::move(place));
    Rule rule = value(schema);
    path_.pop_back();
    return rule;
  }
  Rule write(const JsonSchema& schema);
  Rule choice(const std::vector<JsonSchema>& schemas, Rule (SchemaWriter::*one)(const JsonSchema&));
  Rule simple(const JsonSchema& schema);
  Rule listed(const JsonSchema& schema);
  Rule typed(const std::string& type, const JsonSchema& schema);

  Rule string(const JsonSchema& schema);
  Rule number(const JsonSchema& schema, bool integer);

  Rule array(const JsonSchema& schema);
  std::vector<JsonSchema> listed_values(const JsonSchema& items, int depth = 0) const;  // empty: the items are not an enum
  std::vector<JsonSchema> listed_objects(const JsonSchema& schema, int depth) const;
  std::vector<JsonSchema> distinct_parts(const JsonSchema& items) const;
  std::string telling_member(const JsonSchema& object) const;  // empty: there is none
  struct DistinctCounts {
    int64_t least = 0, most = -1;
    bool behind = false;                    // other items come before
    const JsonSchema* contained = nullptr;  // a schema that some items must match
    int64_t least_contained = 0, most_contained = -1;
  };
  Rule distinct_items(const JsonSchema& items, const DistinctCounts& counts);
  std::vector<GrammarNode> distinct_rules(const JsonSchema& items, bool needed);
  JsonSchema with_distinct_places(JsonSchema array, bool more) const;
  Rule distinct_array(const JsonSchema& schema, const JsonSchema* contained, int64_t least_contained,
                      int64_t most_contained);
  Rule plain_array(const JsonSchema& schema);
  Rule optional_choice(const std::vector<JsonSchema>& arrays);
  Rule further_items(const JsonSchema& items, bool distinct, int64_t least, int64_t most, bool behind);
  GrammarNode array_tail(const std::vector<Rule>& first, GrammarNode tail, int64_t least, int64_t most);

  struct Member {
    GrammarNode text;  // key, colon and value
    bool required;
  };
  Rule object(const JsonSchema& schema);
  std::optional<std::vector<Member>> members(const JsonSchema& schema);
  bool may_be_called(const JsonSchema& schema, const std::string& key) const;
  JsonSchema with_names_listed(JsonSchema schema) const;
  // Keys with one of `characters` at position `at`.
  struct KeyPart {
    int64_t at;
    CodeSet characters;  // empty: all keys
  };
  std::vector<KeyPart> parts_of_keys(const JsonSchema& schema, int64_t count);
  static TextLanguages::Id language_of_part(const KeyPart& part, TextLanguages& languages);
  // counts: minProperties needs the member, so its key must differ from required keys.
  Rule extra_member(const JsonSchema& schema, bool counts, const KeyPart& part = {});
  Rule keys_by_language(const JsonSchema& schema, const std::vector<std::string>& taken, const KeyPart& part);
  TextLanguages::Id names_language(const JsonSchema& names, TextLanguages& languages);
  GrammarNode text_apart_from(const std::vector<std::string>& texts);
  GrammarNode member_list(const std::vector<Member>& members, const Rule& extra, int64_t least_extra,
                          int64_t most_extra);

  GrammarNode character();  // of a JSON string
  GrammarNode space();

  const SchemaDocument& document_;
  RuleBuilder& builder_;
  std::map<std::string, GrammarNode> rules_;  // by JSON text of the schema
  std::set<std::string> writing_, open_, assumed_;
  Rule space_, character_, any_value_, any_object_;  // added on first use
  int depth_ = 0;
  std::vector<std::string> path_;
};

}  // namespace millrace
