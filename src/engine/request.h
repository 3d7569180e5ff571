// What a caller asks of the engine, and what it gets back token by token. Only native types cross this border.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/sampler.h"
#include "sampling/sampling_params.h"

namespace millrace {

using RequestId = uint64_t;

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  SamplingParams sampling;
  int32_t max_tokens = 0;           // 0: until the context is full
  std::vector<int32_t> end_tokens;  // generation stops after any of these
};

enum class FinishReason : uint8_t { None, Stop, Length };

struct Emission {  // one generated token
  RequestId id = 0;
  int32_t token = 0;
  FinishReason finish = FinishReason::None;
  const TokenLogprobs* logprobs = nullptr;  // where asked for; valid during the call
};

}  // namespace millrace
