// A parsed JSON Schema, its references, and its combinators (allOf, anyOf, oneOf, not, if, dependentRequired, ...)
// expanded into alternatives without combinators.
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
  // Some integers are beyond 64 bits and known as doubles only; the grammar must not list them as values.
  bool has_huge_integers() const { return has_huge_integers_; }
  // The schema at "#/$defs/x". Throws Usage if there is none. Other kinds of references were rewritten to this form
  // before.
  const JsonSchema& resolve(const std::string& reference) const;

  // The schema as alternatives without combinators at their top; empty: nothing matches it. A value that matches an
  // alternative matches the schema.
  std::vector<JsonSchema> alternatives(const JsonSchema& schema, int depth = 0) const;

  // The options of a oneOf without other keywords, rewritten as disjoint options of an anyOf.
  std::vector<JsonSchema> exclusive_options(const JsonSchema& options) const;

 private:
  // Restrictions that the grammar adds to a schema: its type, no additional members. If these alone make two schemas
  // disjoint, they must be merged into the schemas, so that the schemas stay disjoint after later merges.
  struct Apart {
    std::vector<JsonSchema> itself, inside;  // for the value; for its members
    void add(JsonSchema fact) {
      if (std::find(itself.begin(), itself.end(), fact) == itself.end()) itself.push_back(std::move(fact));
    }
  };

  // One option of a oneOf merged with each of `bases`, as alternatives that match no other option. as_it_is: the
  // grammar allows exactly the option.
  using Tests = std::vector<std::vector<JsonSchema>>;  // supersets of the alternatives of each option
  Tests tests_of(const JsonSchema& options, int depth) const;
  std::vector<JsonSchema> exclusive_ways(const std::vector<JsonSchema>& bases, const JsonSchema& options,
                                         const Tests& tests, size_t index, int depth, bool* as_it_is) const;
  // A superset: a value that matches the schema matches one of them.
  std::vector<JsonSchema> loose_alternatives(const JsonSchema& schema, int depth) const;
  std::vector<JsonSchema> uncombined(const JsonSchema& schema, int depth) const;
  std::vector<JsonSchema> conditions(const JsonSchema& schema) const;
  JsonSchema negation(const JsonSchema& schema, int depth) const;
  // Whether no value that the grammar allows for `written` matches one of the supersets of another schema. nested:
  // depth of the comparison in members.
  bool excludes(const JsonSchema& written, const std::vector<JsonSchema>& tests, Apart& relied_on, int depth,
                int nested) const;
  std::vector<JsonSchema> product(const std::vector<JsonSchema>& left, const std::vector<JsonSchema>& right) const;
  // Counts the schema parts that are read and copied. Throws Usage beyond a limit, so that no combination takes
  // minutes.
  void spend(const JsonSchema& schema) const;
  void spend(size_t parts) const;

  mutable size_t spent_ = 0;
  JsonSchema root_;
  bool has_huge_integers_ = false;
  bool counts_evaluated_ = false;  // the document has unevaluatedProperties or unevaluatedItems
  bool reference_is_all_ = false;  // drafts up to 7 ignore the keywords beside $ref
};

// Replaces unevaluatedProperties and unevaluatedItems of a schema without combinators by additionalProperties and
// items. This must come before merges with other schemas, whose keywords do not evaluate anything here.
JsonSchema with_unevaluated_closed(JsonSchema schema);

// Whether the schema has a keyword that alternatives() expands.
bool has_combinator(const JsonSchema& schema);

// The complement of a keyword as a choice of schemas; nullopt: no schema can express it.
std::optional<std::vector<JsonSchema>> negated_keyword(const std::string& keyword, const JsonSchema& value);

// The intersection of two schemas without combinators; the schema `false` if it is empty.
JsonSchema merge_schemas(const JsonSchema& a, const JsonSchema& b);

}  // namespace millrace
