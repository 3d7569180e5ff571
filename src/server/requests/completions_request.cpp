#include "server/requests/completions_request.h"

#include "server/requests/chat_request.h"

namespace millrace {
namespace {

PromptInput read_one(const Json& json) {
  if (json.is_string()) return {.text = json.get<std::string>()};
  return {.tokens = json.get<std::vector<int32_t>>(), .is_tokens = true};
}

}  // namespace

Schema prompts_schema() {
  const Schema tokens = Schema::array(Schema::integer(0, INT32_MAX), 1);
  return Schema::any_of(
             {Schema::string(), Schema::array(Schema::string(), 1, 2048), tokens, Schema::array(tokens, 1, 2048)})
      .about("a text, a list of texts, token ids, or a list of such");
}

std::vector<PromptInput> read_prompts(const Json& prompt) {
  const bool one = prompt.is_string() || prompt[0].is_number();
  if (one) return {read_one(prompt)};
  std::vector<PromptInput> prompts;
  for (const Json& each : prompt) prompts.push_back(read_one(each));
  return prompts;
}

const Fields<CompletionsRequest>& completions_fields() {
  using R = CompletionsRequest;
  static const Fields<R> fields{
      {required_field<R>("prompt", prompts_schema().example("Once upon a time"), &R::prompt)},
      sampling_fields<R>(),
      harmless_fields<R>(),
      {field<R>("structured_outputs", structured_outputs_schema(), &R::structured_outputs)},
      guided_fields<R>(),
      {
          field<R>("max_tokens",
                   Schema::integer(0, kMostTokens).unless_given(16).about("0 with echo: scores the prompt"),
                   &R::max_tokens),
          field<R>("logprobs", Schema::integer(0, kMostLogprobs).about("of each token, and so many of the likeliest"),
                   &R::logprobs),
          field<R>("echo", Schema::boolean().about("the prompt comes before the answer"), &R::echo),
          field<R>("best_of", Schema::integer(1, kMostChoices).about("makes so many, keeps the n likeliest per token"),
                   &R::best_of),
          field<R>("response_format", response_format_schema(), &R::response_format),
          field<R>("add_special_tokens",
                   Schema::boolean().unless_given(true).about("the model's BOS before the prompt"),
                   &R::add_special_tokens),
          field<R>("suffix",
                   Schema::string().about("the text behind the answer, for models with fill-in-the-middle tokens"),
                   &R::suffix),
      }};
  return fields;
}

}  // namespace millrace
