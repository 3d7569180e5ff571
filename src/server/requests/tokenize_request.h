// The bodies of POST /tokenize and /detokenize.
#pragma once

#include "server/requests/chat_request.h"

namespace millrace {

struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;
  Json messages = Json::array(), tools = Json::array(), chat_template_kwargs = Json::object();
  bool add_special_tokens = true, return_token_strs = false;
  bool add_generation_prompt = true;
};

inline const Fields<TokenizeRequest>& tokenize_fields() {
  using R = TokenizeRequest;
  static const Fields<R> fields{
      {field<R>("model", Schema::string(), &R::model),
       field<R>("prompt", Schema::string().about("a text; or else messages").example("Hello"), &R::prompt),
       field<R>("messages", messages_schema().about("a conversation, as the chat template shows it"), &R::messages),
       field<R>("tools", tools_schema(), &R::tools),
       field<R>("chat_template_kwargs", Schema::map(Schema::any()), &R::chat_template_kwargs),
       field<R>("add_generation_prompt",
                Schema::boolean().unless_given(true).about("the opening of an answer behind the messages"),
                &R::add_generation_prompt),
       field<R>("add_special_tokens", Schema::boolean().unless_given(true), &R::add_special_tokens),
       field<R>("return_token_strs", Schema::boolean().unless_given(false), &R::return_token_strs)}};
  return fields;
}

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};

inline const Fields<DetokenizeRequest>& detokenize_fields() {
  using R = DetokenizeRequest;
  static const Fields<R> fields{
      {field<R>("model", Schema::string(), &R::model),
       required_field<R>("tokens", Schema::array(Schema::integer(0, INT32_MAX)).example(Json::array({1, 2})),
                         &R::tokens)}};
  return fields;
}

}  // namespace millrace
