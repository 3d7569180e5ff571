// The body of POST /infill, with the names of llama.cpp's server.
#pragma once

#include "server/requests/sampling_request.h"

namespace millrace {

struct InfillRequest : SamplingRequest {
  std::string input_prefix, input_suffix, prompt;
  Json input_extra = Json::array();
  std::optional<int> n_predict;
};

inline const Fields<InfillRequest>& infill_fields() {
  using R = InfillRequest;
  const auto file = Schema::object({{"filename", maybe(Schema::string())}, {"text", Schema::string(), true}});
  static const Fields<R> fields{
      {required_field<R>("input_prefix", Schema::string().example("def add("), &R::input_prefix),
       required_field<R>("input_suffix", Schema::string().example("\n"), &R::input_suffix),
       field<R>("input_extra", Schema::array(file, 0, 256).about("related files"), &R::input_extra),
       field<R>("prompt", Schema::string().about("text behind the prefix: the line that is being written"), &R::prompt),
       field<R>("n_predict", Schema::integer(-1, kMostTokens).about("tokens at most; -1: as many as fit"),
                &R::n_predict)},
      sampling_fields<R>(),
      {ignored_field<R>("cache_prompt", Schema::boolean().about("prompts are always cached")),
       ignored_field<R>("id_slot", Schema::integer()), ignored_field<R>("n_indent", Schema::integer(0)),
       ignored_field<R>("samplers", Schema::any().about("samplers run in a fixed order")),
       ignored_field<R>("t_max_prompt_ms", Schema::integer(0)),
       ignored_field<R>("t_max_predict_ms", Schema::integer(0)),
       ignored_field<R>("response_fields", Schema::array(Schema::string()).about("answers have all fields"))}};
  return fields;
}

}  // namespace millrace
