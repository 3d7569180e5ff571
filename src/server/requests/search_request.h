// The body of POST /v1/search.
#pragma once

#include "server/requests/chat_request.h"

namespace millrace {

struct SearchRequest : SamplingRequest {
  Json messages;       // one of the two
  std::string prompt;  // text as it is, without a chat template
  int budget_tokens = 0;
  int width = 4, segment_tokens = 32, parallel = 4, beam = 16;
  std::optional<int> max_tokens;
  std::string value_model;
};

inline const Fields<SearchRequest>& search_fields() {
  using R = SearchRequest;
  static const Fields<R> fields{
      {required_field<R>("budget_tokens",
                         Schema::integer(1, 1 << 24).about("generated tokens of all branches, at most").example(256),
                         &R::budget_tokens),
       field<R>("messages", messages_schema(), &R::messages),
       field<R>("prompt", Schema::string(1).about("instead of messages: text without a chat template"), &R::prompt),
       field<R>("max_tokens", Schema::integer(1, kMostTokens).about("of an answer, at most"), &R::max_tokens),
       field<R>("width", Schema::integer(1, 64).unless_given(4).about("branches per expansion"), &R::width),
       field<R>("segment_tokens", Schema::integer(1, 1 << 16).unless_given(32).about("tokens of a branch"),
                &R::segment_tokens),
       field<R>("parallel", Schema::integer(1, 64).unless_given(4).about("expansions at once"), &R::parallel),
       field<R>("beam", Schema::integer(1, 1024).unless_given(16).about("open branches kept"), &R::beam),
       field<R>("value_model",
                Schema::string(1).about("a served model; the mean log-probability that it gives a branch is its value"),
                &R::value_model),
       field<R>("n", Schema::integer(1, kMostChoices).unless_given(1).about("answers, best first"), &R::n),
       field<R>("model", Schema::string(), &R::model),
       field<R>("temperature", Schema::number(0.01, 2).unless_given(0.8).about("branches must differ"),
                &R::temperature),
       field<R>("top_p", Schema::number(0, 1), &R::top_p),
       field<R>("top_k", Schema::integer(-1, kMostTokens), &R::top_k),
       field<R>("min_p", Schema::number(0, 1), &R::min_p), field<R>("seed", Schema::integer(), &R::seed),
       field<R>("user", Schema::string(), &R::user), field<R>("priority", Schema::integer(-100, 100), &R::priority)}};
  return fields;
}

}  // namespace millrace
