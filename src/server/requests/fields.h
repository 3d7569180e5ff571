// The fields of a request, each declared once: name, schema, meaning and destination. Validation, parsing and the
// OpenAPI document all use this list.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/requests/schema.h"

namespace millrace {

template <class Request>
struct Field {
  std::string name;
  Schema schema;
  std::function<void(Request&, const Json&)> read;  // null: accepted and ignored
  bool required = false;
};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Reads into a member: json.get<T>() for a T or an optional T.
template <class Request, class Owner, class T>
Field<Request> field(std::string name, Schema schema, T Owner::*member) {
  return {std::move(name), std::move(schema), [member](Request& request, const Json& json) {
            if constexpr (std::is_same_v<T, Json>) {
              request.*member = json;
            } else if constexpr (IsOptional<T>::value) {
              request.*member = json.get<typename T::value_type>();
            } else {
              request.*member = json.get<T>();
            }
          }};
}

template <class Request, class Owner, class T>
Field<Request> required_field(std::string name, Schema schema, T Owner::*member) {
  auto made = field<Request>(std::move(name), std::move(schema), member);
  made.required = true;
  return made;
}

template <class Request>
Field<Request> ignored_field(std::string name, Schema schema) {
  return {std::move(name), std::move(schema), nullptr};
}

template <class Request>
class Fields {
 public:
  Fields(std::initializer_list<std::vector<Field<Request>>> groups) {
    for (const auto& group : groups) fields_.insert(fields_.end(), group.begin(), group.end());
    checked_ = schema();
  }

  // Every field accepts null as absent: some clients send all fields they know.
  Schema schema() const {
    std::vector<Schema::Property> properties;
    for (const auto& f : fields_) {
      properties.push_back({f.name, f.required ? f.schema : f.schema.or_null(), f.required});
    }
    return Schema::object(std::move(properties));
  }

  // Throws ApiError 400.
  Request read(const Json& body) const {
    checked_.check(body, "");
    Request request;
    for (const auto& f : fields_) {
      const auto found = body.find(f.name);
      if (f.read && found != body.end() && !found->is_null()) f.read(request, *found);
    }
    return request;
  }

 private:
  std::vector<Field<Request>> fields_;
  Schema checked_ = Schema::any();  // schema(), made once
};

}  // namespace millrace
