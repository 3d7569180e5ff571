// A JSON Schema as it was sent: parsed within bounds, with its references, and with its combinators (allOf, anyOf,
// oneOf, not, if, dependentRequired, ...) multiplied out into alternatives without them.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

using JsonSchema = nlohmann::ordered_json;

class SchemaDocument {
 public:
  explicit SchemaDocument(std::string_view text);

  const JsonSchema& root() const { return root_; }
  // Some integers are known as doubles only, so that those must not be written as they are.
  bool has_huge_integers() const { return has_huge_integers_; }
  // What "#/$defs/x" means. Throws Usage where there is no such place. Other references were made such before.
  const JsonSchema& resolve(const std::string& reference) const;

  // The schema as a choice of schemas without combinators at their top; none: nothing matches it. What matches one of
  // them matches the schema.
  std::vector<JsonSchema> alternatives(const JsonSchema& schema, int depth = 0) const;

  // The options of a oneOf, which nothing stands beside, as those of an anyOf: what is written of one of them matches
  // no other.
  std::vector<JsonSchema> exclusive_options(const JsonSchema& options) const;

 private:
  // What is written of a schema and not said in it: its type, that it has no other members. Two schemas that are told
  // apart by that stay so, whatever is merged later, only where it is merged as well.
  struct Apart {
    std::vector<JsonSchema> itself, inside;  // of the value, of its members
    void add(JsonSchema fact) {
      if (std::find(itself.begin(), itself.end(), fact) == itself.end()) itself.push_back(std::move(fact));
    }
  };

  // One option of a oneOf beside each of `bases`, as alternatives that match no other option. as_it_is: whether the
  // option alone is written so anyway.
  using Tests = std::vector<std::vector<JsonSchema>>;  // loose alternatives of each option
  Tests tests_of(const JsonSchema& options, int depth) const;
  std::vector<JsonSchema> exclusive_ways(const std::vector<JsonSchema>& bases, const JsonSchema& options,
                                         const Tests& tests, size_t index, int depth, bool* as_it_is) const;
  // Loosely: what matches the schema matches one of them.
  std::vector<JsonSchema> loose_alternatives(const JsonSchema& schema, int depth) const;
  std::vector<JsonSchema> uncombined(const JsonSchema& schema, int depth) const;
  std::vector<JsonSchema> conditions(const JsonSchema& schema) const;
  JsonSchema negation(const JsonSchema& schema, int depth) const;
  // Whether nothing that is written matches the other, of which these are loose alternatives. nested: how many members
  // deep the two are compared.
  bool excludes(const JsonSchema& written, const std::vector<JsonSchema>& tests, Apart& relied_on, int depth,
                int nested) const;
  std::vector<JsonSchema> product(const std::vector<JsonSchema>& left, const std::vector<JsonSchema>& right) const;
  // Counts what is read and copied of schemas, so that no combination of them takes for ever. Throws Usage at the end.
  void spend(const JsonSchema& schema) const;
  void spend(size_t parts) const;

  mutable size_t spent_ = 0;
  JsonSchema root_;
  bool has_huge_integers_ = false;
  bool counts_evaluated_ = false;  // unevaluatedProperties or unevaluatedItems are somewhere
  bool reference_is_all_ = false;  // of drafts up to 7, which pass over what stands beside $ref
};

// A schema without combinators whose unevaluatedProperties and unevaluatedItems are said by additionalProperties and
// items: all that evaluates anything is in it. What is merged with it later does not, so that has to be said before.
JsonSchema with_unevaluated_closed(JsonSchema schema);

// Whether the schema has a keyword that alternatives() takes apart.
bool has_combinator(const JsonSchema& schema);

// What does not match the value of a keyword, as a choice of schemas; nothing: that cannot be said.
std::optional<std::vector<JsonSchema>> negated_keyword(const std::string& keyword, const JsonSchema& value);

// What validates against both, neither of which has combinators; false where nothing does.
JsonSchema merge_schemas(const JsonSchema& a, const JsonSchema& b);

}  // namespace millrace
