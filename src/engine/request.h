// What a caller asks of the engine, and what it gets back token by token. Only native types cross this border.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sampling/constraint.h"
#include "sampling/sampler.h"
#include "sampling/sampling_params.h"

namespace millrace {

using RequestId = uint64_t;

enum class RequestKind : uint8_t {
  Generate,  // tokens after the prompt
  Score,     // prompt_logprobs only, nothing is generated
  Embed,     // one vector for the prompt, nothing is generated
};

enum class Pooling : uint8_t { Mean, Last };  // of the hidden states after the final norm

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  SamplingParams sampling;
  int32_t max_tokens = 0;           // 0: until the context is full
  std::vector<int32_t> end_tokens;  // generation stops after any of these
  int32_t min_tokens = 0;           // end tokens are impossible before this many were generated

  RequestKind kind = RequestKind::Generate;
  int32_t choices = 1;       // OpenAI's n: the prompt is computed once, choice c draws from stream c of the seed
  int prompt_logprobs = -1;  // of each prompt token after the first, and so many of the likeliest; -1: none
  int32_t score_from = 1;    // the first of the prompt's tokens whose log-probability is wanted
  Pooling pooling = Pooling::Mean;
  bool normalise = true;  // an embedding's length becomes 1

  // Draft tokens that a step may check, where the engine has a drafter; -1: as many as its options say. 0: steps of
  // this request never wait for a drafter and can run ahead.
  int32_t draft_tokens = -1;

  // None, or one for each choice; nobody else may touch them until the choice has ended.
  std::vector<std::shared_ptr<Constraint>> constraints;

  std::string client;  // who shares fairly with whom: an API key's name, a user
  int priority = 0;    // higher goes first; waiting raises it, so that nothing starves
};

enum class FinishReason : uint8_t {
  None,
  Stop,       // an end token, or a constraint that lets nothing follow
  Length,     // max_tokens, or the context is full; Score and Embed end with it too
  Cancelled,  // by cancel() or by the end of the service
  Error,      // see Emission::error
  NotInForm,  // the same: no token of the vocabulary continues what a constraint asks for
};

// One generated token of one choice, or its end. Every choice has exactly one emission with a finish reason, its last.
// What it points to is valid during the call only.
struct Emission {
  RequestId id = 0;
  int32_t token = -1;  // -1: none comes with this emission
  FinishReason finish = FinishReason::None;
  const TokenLogprobs* logprobs = nullptr;  // where asked for

  bool is_end = false;  // the token is one of the request's end tokens: no part of the text
  int32_t choice = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt: not computed, found in the prefix tree
  double queued_ms = 0;       // from submission until the prompt's first step

  // With the request's first emission, where asked for: [i] is of prompt[i]. Those before score_from have none: their
  // token is -1.
  std::span<const TokenLogprobs> prompt_logprobs;
  std::span<const float> embedding;
  std::string_view error;  // one line, with FinishReason::Error and NotInForm
};

}  // namespace millrace
