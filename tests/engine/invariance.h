// Helpers for tests of batch-invariant mode on any device: random prompts, and one text generated beside others.
#pragma once

#include <random>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace millrace {

inline std::vector<int32_t> random_prompt(const Runner& runner, std::mt19937& random, size_t length) {
  std::vector<int32_t> prompt(length);
  for (auto& t : prompt) t = static_cast<int32_t>(random() % static_cast<uint32_t>(runner.model().config().vocab));
  return prompt;
}

// Tokens and log-probabilities of `asked`, while `others` of random lengths run before and after it.
inline std::vector<std::pair<int32_t, float>> heard_among(int others, const Request& asked, size_t longest_prompt,
                                                          Runner& runner, std::mt19937& random) {
  Engine engine(runner);
  const auto submit_others = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const size_t length = 1 + random() % longest_prompt;
      engine.submit({random_prompt(runner, random, length), {}, 1 + static_cast<int32_t>(random() % 30)});
    }
  };
  submit_others(others / 2);
  const RequestId id = engine.submit(asked);
  submit_others(others - others / 2);
  std::vector<std::pair<int32_t, float>> heard;
  while (engine.step([&](const Emission& e) {
    if (e.id == id) heard.emplace_back(e.token, e.logprobs->chosen.logprob);
  })) {
  }
  return heard;
}

}  // namespace millrace
