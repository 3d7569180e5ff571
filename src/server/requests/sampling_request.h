// Fields that all generation requests share: sampling, limits, streaming.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sampling/sampling_params.h"
#include "server/requests/fields.h"

namespace millrace {

struct SamplingRequest : SamplingOverrides {
  std::string model;
  std::optional<int64_t> seed;
  Json logit_bias, stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  int min_tokens = 0;
  int n = 1;
  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  std::string user;
  int priority = 0;
};

constexpr int kMostChoices = 128;
constexpr int kMostTokens = 1 << 30;
constexpr size_t kLongestSessionId = 128;  // characters

Schema stop_schema();

// Reads stream_options; used as `into` in sampling_fields.
void read_stream_options(SamplingRequest& request, const Json& json);
Schema stream_options_schema();

// The model's defaults overridden by the request; draws a seed if none is given. Throws ApiError.
SamplingParams to_sampling(const SamplingRequest& request, const SamplingParams& defaults, int32_t vocab);
std::vector<std::string> stop_strings(const SamplingRequest& request);
// The tokens that end an answer: the model's unless ignore_eos is set, and stop_token_ids. Throws ApiError.
std::vector<int32_t> end_tokens(const SamplingRequest& request, const std::vector<int32_t>& of_model, int32_t vocab);

template <class R>
std::vector<Field<R>> sampling_fields() {
  return {
      field<R>("model", Schema::string().about("an id from /v1/models; the served model where it is left out"),
               &R::model),
      field<R>("temperature", Schema::number(0, 2).about("0: always the likeliest token"), &R::temperature),
      field<R>("top_p", Schema::number(0, 1).about("among the likeliest tokens that make up this probability"),
               &R::top_p),
      field<R>("top_k", Schema::integer(-1, kMostTokens).about("among the k likeliest; 0 or -1: all"), &R::top_k),
      field<R>("min_p", Schema::number(0, 1).about("none less likely than this share of the likeliest"), &R::min_p),
      field<R>("typical_p", Schema::number(0.01, 1).about("locally typical sampling; 1: off"), &R::typical_p),
      field<R>("seed", Schema::integer().about("the same seed gives the same text"), &R::seed),
      field<R>("presence_penalty", Schema::number(-2, 2), &R::presence_penalty),
      field<R>("frequency_penalty", Schema::number(-2, 2), &R::frequency_penalty),
      field<R>("repetition_penalty", Schema::number(0.01, 10).about("over 1: what was said becomes less likely"),
               &R::repetition_penalty),
      field<R>("logit_bias", Schema::map(Schema::number(-100, 100)).about("token id -> what is added to its logit"),
               &R::logit_bias),
      field<R>("stop", stop_schema(), &R::stop),
      field<R>("stop_token_ids",
               Schema::array(Schema::integer(0, INT32_MAX), 0, 256).about("the answer ends before any of these tokens"),
               &R::stop_token_ids),
      field<R>("n", Schema::integer(1, kMostChoices).unless_given(1).about("answers to the same prompt"), &R::n),
      field<R>("stream", Schema::boolean().unless_given(false), &R::stream),
      {"stream_options", stream_options_schema(), [](R& r, const Json& json) { read_stream_options(r, json); }},
      field<R>("continuous_usage_stats", Schema::boolean().about("usage with every chunk of a stream"),
               &R::continuous_usage),
      field<R>("ignore_eos", Schema::boolean().about("go on after end tokens: for measurements"), &R::ignore_eos),
      field<R>("min_tokens", Schema::integer(0, kMostTokens).about("no end before this many tokens"), &R::min_tokens),
      field<R>("user", Schema::string().about("shares the machine fairly with other users"), &R::user),
      field<R>("priority", Schema::integer(-100, 100).about("higher goes first"), &R::priority),
  };
}

// Accepted and ignored: they do not change the answer.
template <class R>
std::vector<Field<R>> harmless_fields() {
  return {
      ignored_field<R>("store", Schema::boolean().about("nothing is stored")),
      ignored_field<R>("metadata", Schema::map(Schema::string())),
      ignored_field<R>("service_tier", Schema::string()),
      // server/session_turn reads it.
      ignored_field<R>(
          "session_id",
          Schema::string(0, kLongestSessionId).about("the session of a client that runs tools; found without it")),
      ignored_field<R>("safety_identifier", Schema::string()),
      ignored_field<R>("prompt_cache_key", Schema::string().about("prefixes are shared without it")),
      ignored_field<R>("prompt_cache_retention", Schema::string()),
      ignored_field<R>("prompt_cache_options", Schema::object({}, Schema::Others::Allowed)),
      ignored_field<R>("prediction", Schema::object({}, Schema::Others::Allowed)),
  };
}

}  // namespace millrace
