// The bodies of POST /v1/rerank (the form of Jina and Cohere) and /score (vLLM's).
#pragma once

#include "server/requests/fields.h"

namespace millrace {

struct RerankRequest {
  std::string model, user, query;
  Json documents;
  std::optional<int> top_n, truncate_prompt_tokens;
  bool return_documents = false;
};

struct ScoreRequest {
  std::string model, user;
  Json text_1, text_2;
  std::optional<int> truncate_prompt_tokens;
};

constexpr size_t kMostDocuments = 2048;

inline Schema truncation_schema() {
  return Schema::integer(-1, 1 << 20).about("cut pairs to this many tokens; -1: to the model's limit; absent: refuse");
}

inline const Fields<RerankRequest>& rerank_fields() {
  using R = RerankRequest;
  const auto document =
      Schema::any_of({Schema::string(), Schema::object({{"text", Schema::string(), true}}, Schema::Others::Allowed)});
  static const Fields<R> fields{
      {required_field<R>("query", Schema::string().example("What is the sky?"), &R::query),
       required_field<R>("documents", Schema::array(document, 1, kMostDocuments).example(Json::array({"A text"})),
                         &R::documents),
       field<R>("model", Schema::string(), &R::model),
       field<R>("top_n", Schema::integer(1, 1 << 20).about("answer with this many of the best"), &R::top_n),
       field<R>("return_documents", Schema::boolean().unless_given(false), &R::return_documents),
       field<R>("truncate_prompt_tokens", truncation_schema(), &R::truncate_prompt_tokens),
       field<R>("user", Schema::string(), &R::user)}};
  return fields;
}

inline const Fields<ScoreRequest>& score_fields() {
  using R = ScoreRequest;
  const auto texts = Schema::any_of({Schema::string(), Schema::array(Schema::string(), 1, kMostDocuments)});
  static const Fields<R> fields{{required_field<R>("text_1", texts.example("A question"), &R::text_1),
                                 required_field<R>("text_2", texts.example("A text"), &R::text_2),
                                 field<R>("model", Schema::string(), &R::model),
                                 field<R>("truncate_prompt_tokens", truncation_schema(), &R::truncate_prompt_tokens),
                                 field<R>("user", Schema::string(), &R::user)}};
  return fields;
}

}  // namespace millrace
