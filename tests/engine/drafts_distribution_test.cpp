// Tokens drawn behind drafts follow the model's distribution. The seeds are fixed, so the result does not change.
#include <cmath>

#include "engine/drafts_fixture.h"

namespace millrace {
namespace {

constexpr float kTemperature = 0.5f;  // so that a third token often follows two likely ones

class DraftsDistributionTest : public DraftsTest {
 protected:
  // The probabilities of the token that follows `tokens`.
  std::vector<double> next_after(std::vector<int32_t> tokens) {
    std::vector<double> p(static_cast<size_t>(vocab_));
    Request request{std::move(tokens)};
    request.kind = RequestKind::Score;
    const auto last = static_cast<int32_t>(request.prompt.size()) - 1;
    request.on_row = [&](int32_t position, std::span<const float> logits) {
      if (position != last) return;
      const float most = *std::max_element(logits.begin(), logits.end());
      double sum = 0;
      for (size_t i = 0; i < p.size(); ++i) sum += p[i] = std::exp((double(logits[i]) - most) / kTemperature);
      for (double& x : p) x /= sum;
    };
    Engine engine(*runner_);
    engine.submit(std::move(request));
    while (engine.step([](const Emission&) {})) {
    }
    return p;
  }
};

class FixedDraft final : public SequenceDrafter {
 public:
  std::vector<int32_t> tokens;
  int32_t draft(std::span<const int32_t>, std::span<int32_t> out) override {
    const size_t count = std::min(tokens.size(), out.size());
    std::copy_n(tokens.begin(), count, out.begin());
    return static_cast<int32_t>(count);
  }
};

// Generated tokens 1, 2 and 3 are drawn in one step whose draft guesses tokens 1 and 2. The test compares the
// frequencies of token 2, in texts whose token 1 was the draft, with the probabilities of the model.
TEST_P(DraftsDistributionTest, TokensBehindAnAcceptedDraftFollowTheModel) {
  start(with_logit_rows());
  constexpr int kTexts = 1500;
  std::vector<int32_t> context = prompt(8, 1);
  const auto likeliest = [](const std::vector<double>& p) {
    return static_cast<int32_t>(std::max_element(p.begin(), p.end()) - p.begin());
  };
  const int32_t first = likeliest(next_after(context));
  context.push_back(first);
  FixedDraft drafter;
  drafter.tokens = {likeliest(next_after(context)), 1, 2};
  context.push_back(drafter.tokens[0]);
  const auto p = next_after(context);

  std::vector<int> seen(static_cast<size_t>(vocab_));
  int counted = 0;
  Engine engine(*runner_, {.drafter = &drafter, .draft_tokens = 3});
  std::map<RequestId, std::vector<int32_t>> texts;
  for (uint64_t seed = 0; seed < kTexts; ++seed)
    engine.submit({prompt(8, 1), {.temperature = kTemperature, .top_p = 1, .seed = seed}, 4});
  while (engine.step([&](const Emission& e) { texts[e.id].push_back(e.token); })) {
  }
  for (const auto& [id, text] : texts) {
    if (text[0] != first || text[1] != drafter.tokens[0]) continue;
    ++counted;
    ++seen[static_cast<size_t>(text[2])];
  }
  ASSERT_GT(counted, 100);
  double chi_square = 0;
  int classes = 0;
  double rare = 0, rare_seen = 0;  // classes below five expected texts are counted together
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * counted;
    if (expected < 5) {
      rare += expected;
      rare_seen += seen[i];
      continue;
    }
    chi_square += (seen[i] - expected) * (seen[i] - expected) / expected;
    ++classes;
  }
  if (rare > 0) chi_square += (rare_seen - rare) * (rare_seen - rare) / rare, ++classes;
  ASSERT_GT(classes, 2);
  const double freedom = classes - 1;
  EXPECT_LT(chi_square, freedom + 4 * std::sqrt(2 * freedom)) << counted << " texts";
}

INSTANTIATE_TEST_SUITE_P(Everywhere, DraftsDistributionTest, testing::ValuesIn(tested_places()), name_of);

}  // namespace
}  // namespace millrace
