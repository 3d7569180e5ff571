// A JSON Schema as it was sent: parsed within bounds, with its references, and with allOf, anyOf and oneOf multiplied
// out into alternatives without them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

using Schema = nlohmann::ordered_json;

class SchemaDocument {
 public:
  explicit SchemaDocument(std::string_view text);

  const Schema& root() const { return root_; }
  // What "#/$defs/x" means. Throws Usage where there is no such place, or where it is not in this document.
  const Schema& resolve(const std::string& reference) const;

  // The schema as a choice of schemas without $ref, allOf, anyOf and oneOf at their top; none: nothing matches it.
  std::vector<Schema> alternatives(const Schema& schema, int depth = 0) const;

  // Refuses a oneOf unless no value that is written for one of its options, each together with `base`, validates
  // against another: then it means the same as anyOf.
  void require_one_of(const Schema& base, const Schema& options) const;

 private:
  bool excludes(const Schema& written, const Schema& other, int depth) const;

  Schema root_;
};

// Keywords that say nothing about which values are valid.
bool is_annotation(const std::string& keyword);

// What validates against both, neither of which has combinators; false where nothing does.
Schema merge_schemas(const Schema& a, const Schema& b);

// The types that a schema without combinators allows: those it names, else those its keywords speak of, else all seven.
std::vector<std::string> schema_types(const Schema& schema);

// The values of enum or const that the other keywords allow. Only for schemas that have one of them.
std::vector<Schema> allowed_values(const Schema& schema);

}  // namespace millrace
