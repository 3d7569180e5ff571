// A JSON Schema as it was sent: parsed within bounds, with its references, and with its combinators (allOf, anyOf,
// oneOf, not, if, dependentRequired, ...) multiplied out into alternatives without them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class Ebnf;
using Schema = nlohmann::ordered_json;

class SchemaDocument {
 public:
  explicit SchemaDocument(std::string_view text);

  const Schema& root() const { return root_; }
  // What "#/$defs/x" means. Throws Usage where there is no such place, or where it is not in this document.
  const Schema& resolve(const std::string& reference) const;

  // The schema as a choice of schemas without combinators at their top; none: nothing matches it. What matches one of
  // them matches the schema.
  std::vector<Schema> alternatives(const Schema& schema, int depth = 0) const;

  // The options of a oneOf as those of an anyOf: one whose values, written together with one of `bases`, could match
  // another is given a `not` of that.
  std::vector<Schema> exclusive_options(const std::vector<Schema>& bases, const Schema& options) const;

 private:
  // Loosely: what matches the schema matches one of them.
  std::vector<Schema> loose_alternatives(const Schema& schema, int depth) const;
  std::vector<Schema> conditions(const Schema& schema) const;
  Schema negation(const Schema& schema, int depth) const;
  bool excludes(const Schema& written, const Schema& other, int depth) const;
  std::vector<Schema> product(const std::vector<Schema>& left, const std::vector<Schema>& right) const;
  // The place whose $anchor has the name.
  const Schema* find_anchor(const Schema& value, const std::string& name) const;
  // Counts what is read and copied of schemas, so that no combination of them takes for ever. Throws Usage at the end.
  void spend(const Schema& schema) const;

  mutable size_t spent_ = 0;
  Schema root_;
  bool counts_evaluated_ = false;  // unevaluatedProperties or unevaluatedItems are somewhere
};

// Whether the schema has a keyword that alternatives() takes apart.
bool has_combinator(const Schema& schema);

// What does not match the value of a keyword, as a choice of schemas; nothing: that cannot be said.
std::optional<std::vector<Schema>> negated_keyword(const std::string& keyword, const Schema& value);

// Keywords that say nothing about which values are valid.
bool is_annotation(const std::string& keyword);

// What validates against both, neither of which has combinators; false where nothing does.
Schema merge_schemas(const Schema& a, const Schema& b);

// The types that a schema without combinators allows: those it names, else those its keywords speak of, else all seven.
std::vector<std::string> schema_types(const Schema& schema);

// The values of enum or const that the other keywords allow. Only for schemas that have one of them.
// What that takes is counted against the bound of the grammar.
std::vector<Schema> allowed_values(const Schema& schema, Ebnf& ebnf);

}  // namespace millrace
