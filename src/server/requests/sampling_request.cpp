#include "server/requests/sampling_request.h"

#include <charconv>
#include <random>

#include "server/requests/api_error.h"

namespace millrace {
namespace {

int32_t token_of(const std::string& text, int32_t vocab) {
  int32_t token = -1;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, token);
  if (error != std::errc() || rest != end || token < 0 || token >= vocab) {
    fail_field("logit_bias", "invalid_value", "'logit_bias' names the token '{}': it must be an id less than {}", text,
               vocab);
  }
  return token;
}

}  // namespace

Schema stop_schema() {
  return Schema::any_of({Schema::string(1), Schema::array(Schema::string(1), 0, 16)})
      .about("the text ends before the first of these");
}

Schema stream_options_schema() {
  return Schema::object({{"include_usage", Schema::boolean().or_null()},
                         {"continuous_usage_stats", Schema::boolean().or_null()},
                         {"include_obfuscation", Schema::boolean().or_null()}});
}

void read_stream_options(SamplingRequest& request, const Json& json) {
  const auto flag = [&](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_boolean() && found->get<bool>();
  };
  request.include_usage = flag("include_usage");
  request.continuous_usage = request.continuous_usage || flag("continuous_usage_stats");
  if (flag("include_obfuscation")) {
    fail_field("stream_options.include_obfuscation", "unsupported_value",
               "'stream_options.include_obfuscation' is not supported; leave it out");
  }
}

std::vector<std::string> stop_strings(const SamplingRequest& request) {
  if (request.stop.is_null()) return {};
  if (request.stop.is_string()) return {request.stop.get<std::string>()};
  return request.stop.get<std::vector<std::string>>();
}

std::vector<int32_t> end_tokens(const SamplingRequest& r, const std::vector<int32_t>& of_model, int32_t vocab) {
  std::vector<int32_t> tokens;
  if (!r.ignore_eos) tokens = of_model;
  for (const int32_t token : r.stop_token_ids) {
    if (token >= vocab) {
      fail_field("stop_token_ids", "invalid_value", "token {} is not in the vocabulary of {}", token, vocab);
    }
    tokens.push_back(token);
  }
  return tokens;
}

SamplingParams to_sampling(const SamplingRequest& r, const SamplingParams& defaults, int32_t vocab) {
  SamplingParams p = with_overrides(defaults, r);
  if (r.logit_bias.is_object()) {
    for (const auto& [token, bias] : r.logit_bias.items()) {
      p.logit_bias.emplace_back(token_of(token, vocab), bias.get<float>());
    }
  }
  p.seed = r.seed ? static_cast<uint64_t>(*r.seed) : (uint64_t{std::random_device()()} << 32 | std::random_device()());
  validate(p);
  return p;
}

}  // namespace millrace
