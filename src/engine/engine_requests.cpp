// Requests on their way in: checks, and the sequences of all choices.
#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"

namespace millrace {
namespace {

constexpr int32_t kMostChoices = 128;

}  // namespace

void Engine::check(const Request& r) const {
  validate(r.sampling);
  const int64_t vocab = runner_.model().config().vocab, context = runner_.options().context;
  if (r.prompt.empty()) fail(ErrorKind::Usage, "the prompt is empty: there is no token to start from");
  for (const int32_t token : r.prompt) {
    if (token < 0 || token >= vocab) fail(ErrorKind::Usage, "token {} is not in the vocabulary of {}", token, vocab);
  }
  const auto prompt = static_cast<int64_t>(r.prompt.size());
  const bool generates = r.kind == RequestKind::Generate;
  if (runner_.model().pools() && r.kind != RequestKind::Embed)
    fail(ErrorKind::Usage, "this model makes {}: it cannot generate or score text",
         runner_.model().pools_to_scores() ? "scores of pairs of texts" : "embeddings");
  if (runner_.model().pools() && r.on_row != nullptr)
    fail(ErrorKind::Usage, "this model gives one vector for a text, not one for each token");
  if (prompt > context || (generates && prompt == context)) {
    fail(ErrorKind::Usage, "This model's maximum context length is {} tokens; the prompt has {}", context, prompt);
  }
  if (r.choices < 1 || r.choices > kMostChoices)
    fail(ErrorKind::Usage, "{} choices: from 1 to {} are possible", r.choices, kMostChoices);
  if (!generates && r.choices != 1)
    fail(ErrorKind::Usage, "{} choices: a prompt that generates nothing has one", r.choices);
  if (!r.constraints.empty() && r.constraints.size() != static_cast<size_t>(r.choices))
    fail(ErrorKind::Usage, "{} constraints for {} choices", r.constraints.size(), r.choices);
  if (r.prompt_logprobs > kMostLogprobs)
    fail(ErrorKind::Usage, "{} log-probabilities for each token of the prompt: at most {}", r.prompt_logprobs,
         kMostLogprobs);
  if (r.max_tokens < 0 || r.min_tokens < 0) fail(ErrorKind::Usage, "a negative number of tokens cannot be generated");
}

std::unique_ptr<Sequence> Engine::prepare(Request request) {
  check(request);
  const Model& model = runner_.model();
  if (request.pooling == Pooling::OfModel)
    request.pooling = pooling_.kind == PoolKind::Last ? Pooling::Last : Pooling::Mean;
  if (model.pools_to_scores()) request.normalise = false;
  if (!request.normalise) request.normalise = pooling_.normalise;
  if (!model.has_token_types()) request.second = 0;
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t room = runner_.options().context - prompt;
  const int64_t wanted = request.kind != RequestKind::Generate ? 0
                         : request.max_tokens > 0              ? std::min<int64_t>(request.max_tokens, room)
                                                               : room;
  if (parked_ != nullptr && request.kind == RequestKind::Generate)
    request.parked = parked_->fetch(key_of(request.adapter.get(), request.prompt.size()), request.prompt);
  auto group = std::make_shared<Group>();
  group->id = next_id_.fetch_add(1);
  group->arrival = now();
  for (int32_t choice = 1; choice < request.choices; ++choice) group->unborn.push_back(choice);
  group->request = std::move(request);
  const auto longest = static_cast<int32_t>(prompt + wanted);
  const auto make = [&](int32_t choice) {
    auto sequence =
        std::make_unique<Sequence>(group, choice, runner_.state().new_table(longest), longest,
                                   runner_.model().config().vocab, most_drafts(group->request), model.pools());
    for (int32_t i = 0; i < most_branches(group->request); ++i)
      sequence->add_branch(runner_.state().new_table(longest));
    return sequence;
  };
  auto first = make(0);
  for (const int32_t choice : group->unborn) first->add_choice(make(choice));
  return first;
}

PrefixKey Engine::key_of(const Adapter* adapter, size_t tokens) const {
  const int64_t long_from = runner_.model().long_from();
  return {long_from > 0 && static_cast<int64_t>(tokens) > long_from, adapter == nullptr ? "" : adapter->key};
}

void Engine::park(const Adapter* adapter, std::span<const int32_t> tokens) {
  if (parking_) parking_->park(key_of(adapter, tokens.size()), tokens);
}

void Engine::forget_parked(const Adapter* adapter, std::span<const int32_t> tokens) {
  if (parking_) parking_->forget(key_of(adapter, tokens.size()), tokens);
}

void Engine::save_parked() {
  if (parking_) parking_->save_all();
}

ParkedStates::Found Engine::parked_place(const Adapter* adapter, std::span<const int32_t> tokens) {
  if (!parking_) return {};
  return parking_->place(key_of(adapter, tokens.size()), tokens);
}

int32_t Engine::most_drafts(const Request& request) const {
  if (request.kind != RequestKind::Generate) return 0;
  return request.draft_tokens < 0 ? draft_tokens_ : std::min(request.draft_tokens, draft_tokens_);
}

// Branches are drawn from as plain rows: a mask, a penalty or recurrent state would depend on the rows before.
int32_t Engine::most_branches(const Request& request) const {
  const SamplingParams& sampling = request.sampling;
  const bool plain = request.constraints.empty() && request.min_tokens == 0 && sampling.logprobs < 0 &&
                     !has_penalties(sampling) && sampling.logit_bias.empty();
  return plain && most_drafts(request) > 0 && !runner_.state().has_slots() ? draft_width_ - 1 : 0;
}

RequestId Engine::submit(std::unique_ptr<Sequence> prepared) {
  const RequestId id = prepared->id();
  ++totals_.requests;
  scheduler_.add(std::move(prepared));
  return id;
}

}  // namespace millrace
