#include "engine/sequence.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace millrace {

Sequence::Sequence(RequestId id, Request request, BlockTable table, int32_t longest, int64_t vocab)
    : id_(id),
      request_(std::move(request)),
      table_(std::move(table)),
      prompt_length_(static_cast<int32_t>(request_.prompt.size())),
      longest_(longest),
      tokens_(request_.prompt),
      sampler_(request_.sampling, static_cast<int32_t>(vocab)) {
  tokens_.reserve(static_cast<size_t>(longest));
  sampler_.observe_prompt(request_.prompt);
}

Emission Sequence::sample(std::span<float> logits) {
  const auto is_number = [](float logit) { return logit > -std::numeric_limits<float>::infinity(); };
  if (std::none_of(logits.begin(), logits.end(), is_number)) {
    fail(ErrorKind::BadFile, "the model gives no number for any token: its weights are damaged");
  }
  const int32_t token = sampler_.sample(logits);
  tokens_.push_back(token);
  const auto& ends = request_.end_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    finish_ = FinishReason::Stop;
  } else if (length() >= longest_) {
    finish_ = FinishReason::Length;
  }
  return {id_, token, finish_, sampler_.logprobs()};
}

}  // namespace millrace
