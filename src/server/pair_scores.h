// Scores pairs of texts: with a cross-encoder, or by the cosine of two embeddings.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/api.h"

namespace millrace {

struct PairScores {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::string field;               // name of the field with the texts, for errors
  std::optional<int> most_tokens;  // of a pair; -1: the model's limit; nullopt: longer pairs are refused
  std::string client;
  std::function<void(Call& call, const std::vector<float>& scores)> answer;  // by pair
};

// Throws ApiError 400 for a model that can do neither.
void score_pairs(const std::shared_ptr<Call>& call, ApiContext& context, PairScores work);

}  // namespace millrace
