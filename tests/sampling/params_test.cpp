#include "sampling/sampling_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "sampling/sampler.h"

namespace millrace {
namespace {

TEST(SamplingParams, TheDefaultsAndTheBordersAreValid) {
  validate({});
  SamplingParams p;
  p.temperature = p.top_p = p.typical_p = 0;
  p.min_p = 1;
  p.top_k = -1;
  p.frequency_penalty = -2;
  p.presence_penalty = 2;
  p.logprobs = 20;
  p.logit_bias = {{0, -100.0f}};
  validate(p);
}

TEST(SamplingParams, EachFieldIsCheckedAndNamed) {
  using Params = SamplingParams;
  const std::vector<std::pair<const char*, std::function<void(Params&)>>> cases = {
      {"temperature", [](Params& p) { p.temperature = -0.1f; }},
      {"temperature", [](Params& p) { p.temperature = NAN; }},
      {"temperature", [](Params& p) { p.temperature = INFINITY; }},
      {"top_k", [](Params& p) { p.top_k = -2; }},
      {"top_p", [](Params& p) { p.top_p = 1.1f; }},
      {"top_p", [](Params& p) { p.top_p = NAN; }},
      {"min_p", [](Params& p) { p.min_p = -1; }},
      {"typical_p", [](Params& p) { p.typical_p = 2; }},
      {"repetition_penalty", [](Params& p) { p.repetition_penalty = 0; }},
      {"repetition_window", [](Params& p) { p.repetition_window = -1; }},
      {"frequency_penalty", [](Params& p) { p.frequency_penalty = 2.5f; }},
      {"presence_penalty", [](Params& p) { p.presence_penalty = -2.5f; }},
      {"logprobs", [](Params& p) { p.logprobs = 21; }},
      {"logit_bias",
       [](Params& p) {
         p.logit_bias = {{3, NAN}};
       }},
      {"logit_bias",
       [](Params& p) {
         p.logit_bias = {{-3, 1.0f}};
       }},
  };
  for (const auto& [field, spoil] : cases) {
    SamplingParams p;
    spoil(p);
    try {
      validate(p);
      ADD_FAILURE() << field << " was not checked";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage);
      EXPECT_THAT(e.what(), testing::HasSubstr(field));
    }
  }
}

TEST(SamplingParams, ABiasOutsideOfTheVocabularyIsRefused) {
  SamplingParams p;
  p.logit_bias = {{5, 1.0f}};
  EXPECT_THROW(Sampler(p, 5), Error);
  Sampler(p, 6);
}

}  // namespace
}  // namespace millrace
