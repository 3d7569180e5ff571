// The body of POST /v1/embeddings.
#pragma once

#include "server/requests/completions_request.h"

namespace millrace {

struct EmbeddingsRequest {
  std::string model, user;
  Json input;
  std::string encoding_format = "float";
  std::optional<int> dimensions;
};

inline const Fields<EmbeddingsRequest>& embeddings_fields() {
  using R = EmbeddingsRequest;
  static const Fields<R> fields{
      {required_field<R>("input", prompts_schema().example("A text"), &R::input),
       field<R>("model", Schema::string(), &R::model),
       field<R>("encoding_format", Schema::word({"float", "base64"}).unless_given("float"), &R::encoding_format),
       field<R>("dimensions",
                Schema::integer(1, 1 << 20)
                    .about("an embedding model's vectors are cut to this length; others give their own only"),
                &R::dimensions),
       field<R>("user", Schema::string(), &R::user)}};
  return fields;
}

}  // namespace millrace
