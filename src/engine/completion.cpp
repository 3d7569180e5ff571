#include "engine/completion.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "engine/choice_text.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Completion complete(Engine& engine, const Tokenizer* tokenizer, const CompletionOptions& options,
                    FunctionRef<void(std::string_view)> on_text) {
  Completion result;
  result.prompt_tokens = static_cast<int32_t>(options.prompt.size());
  std::optional<ChoiceText> text;
  if (tokenizer != nullptr) text.emplace(*tokenizer, options.stop, /*min_tokens=*/0, options.visible);
  const auto say = [&](std::string_view piece) {
    result.text += piece;
    if (!piece.empty()) on_text(piece);
  };

  std::string error;
  std::exception_ptr thrown;  // by on_text; rethrown after the step, once the request is cancelled
  const auto start = Clock::now();
  auto first = start, last = start;
  Request request{options.prompt, options.sampling, options.max_tokens, options.end_tokens};
  if (options.constraint) request.constraints.push_back(options.constraint);
  const RequestId id = engine.submit(std::move(request));
  while (result.finish == FinishReason::None && !result.interrupted && !thrown) {
    engine.step([&](const Emission& emission) {
      // A step may generate several tokens; those after a stop string do not belong to the answer.
      if (result.finish != FinishReason::None || thrown) return;
      if (emission.finish == FinishReason::Error || emission.finish == FinishReason::NotInForm) {
        error = emission.error;
        return;
      }
      result.cached_tokens = emission.cached_tokens;
      result.accepted_drafts = emission.accepted_drafts;
      result.rejected_drafts = emission.rejected_drafts;
      last = Clock::now();
      if (result.tokens.empty()) first = last;
      result.tokens.push_back(emission.token);
      result.finish = emission.finish;
      if (emission.logprobs != nullptr) result.logprobs.push_back(*emission.logprobs);
      try {
        if (text && !emission.is_end) say(text->push(emission.token));
      } catch (...) {
        thrown = std::current_exception();
      }
      if (text && text->stopped()) result.finish = FinishReason::Stop;
    });
    if (!error.empty()) fail(ErrorKind::BadFile, "{}", error);
    result.interrupted = interrupted();
  }
  engine.cancel(id);  // does nothing unless a stop string, the user or an exception ended the loop
  if (thrown) std::rethrow_exception(thrown);
  if (text && !text->stopped()) say(text->finish());

  result.ttft_ms = std::chrono::duration<double, std::milli>(first - start).count();
  const double seconds = std::chrono::duration<double>(last - first).count();
  result.tokens_per_second = seconds > 0 && !result.tokens.empty() ? double(result.tokens.size() - 1) / seconds : 0;
  return result;
}

}  // namespace millrace
