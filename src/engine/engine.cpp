#include "engine/engine.h"

#include <algorithm>

#include "base/error.h"

namespace millrace {

Engine::Engine(Runner& runner, const EngineOptions&)
    : runner_(runner), batch_(runner.options().rows, runner.options().sequences, runner.options().logit_rows) {
  running_.reserve(static_cast<size_t>(runner.options().sequences));
  with_logits_.reserve(static_cast<size_t>(runner.options().sequences));
}

RequestId Engine::submit(Request request) {
  validate(request.sampling);
  const int64_t vocab = runner_.model().config().vocab, context = runner_.options().context;
  if (request.prompt.empty()) fail(ErrorKind::Usage, "the prompt is empty: there is no token to start from");
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= vocab) fail(ErrorKind::Usage, "token {} is not in the vocabulary of {}", token, vocab);
  }
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt >= context) {
    fail(ErrorKind::Usage, "This model's maximum context length is {} tokens; the prompt has {}", context, prompt);
  }
  const int64_t room = context - prompt;
  const int64_t wanted = request.max_tokens > 0 ? std::min<int64_t>(request.max_tokens, room) : room;
  const auto longest = static_cast<int32_t>(prompt + wanted);
  waiting_.push_back(
      std::make_unique<Sequence>(next_id_, std::move(request), runner_.kv().new_table(longest), longest, vocab));
  return next_id_++;
}

void Engine::cancel(RequestId id) {
  const auto is_it = [&](const auto& sequence) { return sequence->id() == id; };
  std::erase_if(running_, is_it);
  std::erase_if(waiting_, is_it);
}

// First come, first served. A sequence is admitted with pages for all it may become, so that it can never run out.
void Engine::admit() {
  while (!waiting_.empty() && running_.size() < static_cast<size_t>(runner_.options().sequences)) {
    Sequence& next = *waiting_.front();
    if (!next.table().reserve(next.longest())) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// Decodes first: a long prompt may not hold up the streams that are running. Prompts share the rows that are left.
void Engine::compose() {
  batch_.clear();
  with_logits_.clear();
  int64_t room = runner_.options().rows;
  const int64_t long_from = runner_.model().long_from();
  for (auto& sequence : running_) {
    if (long_from > 0 && sequence->length() > long_from) sequence->become_long();
  }
  const auto add = [&](Sequence& sequence) {
    const auto rows = std::min<int64_t>(room, static_cast<int64_t>(sequence.pending().size()));
    if (rows == 0) return;
    const bool completes = rows == static_cast<int64_t>(sequence.pending().size());
    batch_.add(sequence.pending().first(static_cast<size_t>(rows)), sequence.computed(), sequence.length(),
               sequence.table().pages(), completes ? StepBatch::Logits::Last : StepBatch::Logits::None);
    if (completes) with_logits_.push_back(&sequence);
    sequence.advance(static_cast<int32_t>(rows));
    room -= rows;
  };
  for (auto& sequence : running_) {
    if (sequence->decoding()) add(*sequence);
  }
  for (auto& sequence : running_) {
    if (!sequence->decoding() && room > 0) add(*sequence);
  }
}

bool Engine::step(FunctionRef<void(const Emission&)> emit) {
  admit();
  if (running_.empty()) return false;
  compose();
  sample(runner_.forward(batch_.batch()), emit);
  std::erase_if(running_, [](const auto& sequence) { return sequence->finished(); });
  return !running_.empty() || !waiting_.empty();
}

void Engine::sample(Matrix logits, FunctionRef<void(const Emission&)> emit) {
  for (size_t i = 0; i < with_logits_.size(); ++i) {
    emit(with_logits_[i]->sample({logits.row<float>(static_cast<int64_t>(i)), static_cast<size_t>(logits.cols)}));
  }
}

}  // namespace millrace
