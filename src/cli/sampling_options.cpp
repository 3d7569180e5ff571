#include "cli/sampling_options.h"

#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <random>

#include "base/error.h"
#include "base/tell.h"
#include "cli/checks.h"

namespace millrace {
namespace {

std::pair<int32_t, float> parse_bias(const std::string& text) {
  int32_t id = 0;
  const char* end = text.data() + text.size();
  const auto [colon, error] = std::from_chars(text.data(), end, id);
  float bias = 0;
  if (error == std::errc() && colon != end && *colon == ':') {
    const auto [rest, bad] = std::from_chars(colon + 1, end, bias);
    if (bad == std::errc() && rest == end && id >= 0) return {id, bias};
  }
  fail(ErrorKind::Usage, "--logit-bias {}: expected TOKEN:BIAS, as in 42:-5.0", text);
}

}  // namespace

void add_sampling_options(CLI::App& verb, SamplingOptions& o) {
  verb.add_option("-n,--max-tokens", o.max_tokens, "stop after this many tokens; 0: when the model is done")
      ->check(whole_number(0, 1 << 30));
  verb.add_option("--temp,--temperature", o.temperature, "0: always the likeliest token");
  verb.add_option("--top-k", o.top_k, "sample from the K likeliest tokens; 0: all");
  verb.add_option("--top-p", o.top_p, "sample from the likeliest tokens whose probabilities add up to this");
  verb.add_option("--min-p", o.min_p, "drop tokens less likely than this fraction of the likeliest");
  verb.add_option("--typical", o.typical_p, "locally typical sampling; 1: off");
  verb.add_option("--repetition-penalty", o.repetition_penalty, "above 1: tokens that occurred become less likely");
  verb.add_option("--presence-penalty", o.presence_penalty,
                  "subtracted from the logit of every token generated so far");
  verb.add_option("--frequency-penalty", o.frequency_penalty, "subtracted once for each time the token was generated");
  verb.add_option("--logit-bias", o.logit_bias, "TOKEN:BIAS, added to that token's logit")->allow_extra_args(false);
  verb.add_option("--seed", o.seed, "the same seed gives the same text")->check(is_seed);
  verb.add_option("--stop", o.stop, "end before this string; may be given several times")->allow_extra_args(false);
  verb.add_flag("--ignore-eos", o.ignore_eos, "go on after end tokens: for measurements");
}

SamplingParams sampling_params(const SamplingOptions& o, const SamplingParams& defaults) {
  SamplingParams p = with_overrides(defaults, o);
  p.seed = o.seed ? *o.seed : std::random_device()();
  for (const auto& bias : o.logit_bias) p.logit_bias.push_back(parse_bias(bias));
  validate(p);
  return p;
}

void tell_settings(const Runner& runner, const SamplingParams& params, bool from_model) {
  if (isatty(STDERR_FILENO) == 0) return;
  tell(Stream::Stderr, "{}, {} threads, context {}; {} ({})\n", runner.hardware().name, runner.hardware().threads,
       runner.options().context, describe(params), from_model ? "the model's defaults" : "millrace's defaults");
}

std::string describe(const SamplingParams& p) {
  if (p.temperature == 0) return "greedy";
  std::string text = fmt::format("temperature {:g}", p.temperature);
  if (p.top_k > 0) text += fmt::format(", top-k {}", p.top_k);
  if (p.top_p < 1) text += fmt::format(", top-p {:g}", p.top_p);
  if (p.min_p > 0) text += fmt::format(", min-p {:g}", p.min_p);
  if (p.typical_p < 1) text += fmt::format(", typical {:g}", p.typical_p);
  if (p.repetition_penalty != 1) text += fmt::format(", repetition penalty {:g}", p.repetition_penalty);
  if (p.presence_penalty != 0) text += fmt::format(", presence penalty {:g}", p.presence_penalty);
  if (p.frequency_penalty != 0) text += fmt::format(", frequency penalty {:g}", p.frequency_penalty);
  return text + fmt::format(", seed {}", p.seed);
}

}  // namespace millrace
