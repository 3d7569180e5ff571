// A request to the engine, and the emissions that it returns token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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

// Of the hidden states after the final norm. A model that pools itself (Model::pools) ignores it.
enum class Pooling : uint8_t {
  OfModel,  // as the model's files say, or the mean
  Mean,
  Last,
};

struct Adapter;
struct ParkedState;

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  SamplingParams sampling;
  int32_t max_tokens = 0;           // 0: up to the end of the context
  std::vector<int32_t> end_tokens;  // generation stops after any of these
  int32_t min_tokens = 0;           // end tokens are masked before this many tokens are generated

  RequestKind kind = RequestKind::Generate;
  int32_t choices = 1;  // OpenAI's n: the prompt is computed once; choice c samples from stream c of the seed
  int prompt_logprobs =
      -1;                  // log-probabilities of prompt tokens after the first, with this many alternatives; -1: none
  int32_t score_from = 1;  // index of the first prompt token whose log-probability is wanted
  Pooling pooling = Pooling::OfModel;
  std::optional<bool> normalise;  // scale an embedding to length 1; nullopt: as the model's files say
  int32_t second = 0;             // index of the first token of the second text of a pair; 0: one text
  // Receives the logits (Score) or hidden states (Embed) of every prompt position, on the engine's thread and within
  // the step. A preempted prompt reports its positions again. Null: none are wanted.
  std::function<void(int32_t position, std::span<const float> row)> on_row;

  // Draft tokens per step, if the engine has a drafter; -1: as in its options. 0: the steps of this request do not wait
  // for the drafter and can run ahead.
  int32_t draft_tokens = -1;

  // The state of a parked session that begins this prompt, read from disk. Engine::prepare sets it.
  std::shared_ptr<const ParkedState> parked;

  // Empty, or one per choice. The engine has exclusive use until the choice ends.
  std::vector<std::shared_ptr<Constraint>> constraints;

  std::shared_ptr<const Adapter> adapter;  // of this engine's runner; null: the model's own weights

  std::string client;  // unit of fair sharing: the name of an API key or a user
  int priority = 0;    // higher goes first; waiting raises it, so that no request starves
};

enum class FinishReason : uint8_t {
  None,
  Stop,       // an end token, or a constraint that allows no further token
  Length,     // max_tokens, or the context is full; Score and Embed end with it too
  Cancelled,  // by cancel() or by the end of the service
  Error,      // see Emission::error
  NotInForm,  // as Error: no token of the vocabulary can continue under the constraint
};

// One generated token of one choice, or its end. The last emission of every choice, and no other, has a finish reason.
// Pointers and views are valid only during the call.
struct Emission {
  RequestId id = 0;
  int32_t token = -1;  // -1: this emission has no token
  FinishReason finish = FinishReason::None;
  const TokenLogprobs* logprobs = nullptr;  // if requested

  bool is_end = false;  // the token is an end token of the request and not part of the text
  int32_t choice = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;                         // prompt tokens found in the prefix tree, not computed
  int32_t accepted_drafts = 0, rejected_drafts = 0;  // draft tokens of this choice so far
  double queued_ms = 0;                              // from submission to the first step of the prompt
  double compute_ms = 0;                             // this choice's share of its steps' time so far, by rows
  std::optional<double> joules;                      // the same of their energy; nullopt: the device does not count it

  // In the first emission of the request, if requested: [i] belongs to prompt[i]. Entries before score_from have token
  // -1.
  std::span<const TokenLogprobs> prompt_logprobs;
  std::span<const float> embedding;
  std::string_view error;  // one line, for FinishReason::Error and NotInForm
};

}  // namespace millrace
