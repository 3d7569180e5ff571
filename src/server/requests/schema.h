// A schema of JSON values, used to validate requests and to write the OpenAPI document.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/requests/json.h"

namespace millrace {

class Schema {
 public:
  struct Property;
  enum class Others { Refused, Allowed };  // for unlisted properties of an object

  static Schema any();
  static Schema null();
  static Schema boolean();
  static Schema integer(int64_t least = std::numeric_limits<int64_t>::min(),
                        int64_t most = std::numeric_limits<int64_t>::max());
  static Schema number(double least = -std::numeric_limits<double>::infinity(),
                       double most = std::numeric_limits<double>::infinity());
  static Schema string(size_t least = 0, size_t most = std::numeric_limits<size_t>::max());
  static Schema word(std::vector<std::string> words);  // one of these
  static Schema array(Schema items, size_t least = 0, size_t most = std::numeric_limits<size_t>::max());
  static Schema object(std::vector<Property> properties, Others others = Others::Refused);
  static Schema map(Schema values);  // an object with arbitrary names
  static Schema any_of(std::vector<Schema> forms);

  Schema or_null() const;                       // also accepts null
  Schema about(std::string description) const;  // for the OpenAPI document
  Schema unless_given(Json value) const;        // default value, for the OpenAPI document
  Schema example(Json value) const;

  // Throws ApiError 400 with the location (`path`) and the problem.
  void check(const Json& value, const std::string& path) const;

  Json document() const;  // as JSON Schema

 private:
  struct Node;
  explicit Schema(Node node);
  void check_bounds(const Json& value, const std::string& path) const;
  [[noreturn]] void refuse_unsupported(const std::string& path) const;
  void check_object(const Json& value, const std::string& path) const;
  void check_forms(const Json& value, const std::string& path) const;
  std::vector<std::string> words() const;
  int words_in(const Json& value) const;
  bool begins_like(const Json& value) const;
  void check_words_of_forms(const Json& value, const std::string& path) const;
  std::shared_ptr<const Node> node_;
};

struct Schema::Property {
  std::string name;
  Schema schema;
  bool required = false;
};

inline Schema maybe(const Schema& schema) { return schema.or_null(); }

}  // namespace millrace
