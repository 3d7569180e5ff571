#include "api/request_stream.h"

#include <utility>

#include "base/error.h"
#include "server/answer_json.h"

namespace millrace {

RequestStream::RequestStream(std::shared_ptr<ServedModel> model, PreparedRequest prepared, const Wake& wake)
    : model_(std::move(model)),
      one_call_(prepared.one_call),
      choices_(static_cast<size_t>(prepared.request.choices)),
      open_(choices_.size()) {
  const Request& request = prepared.request;
  for (Choice& choice : choices_) {
    choice.text =
        std::make_unique<ChoiceText>(*model_->text().tokenizer, prepared.stop, request.min_tokens, prepared.visible);
    if (prepared.parser) choice.parser.emplace(*prepared.parser);
  }
  queue_->wake = wake;
  // The reader's thread finds stop strings, so it must see every token.
  if (!prepared.stop.empty()) queue_->wake.at_end_only = false;
  queue_->running = request.choices;
  queue_->prompt_tokens = static_cast<int32_t>(request.prompt.size());
  id_ = model_->service().submit(std::move(prepared.request), [queue = queue_](const Emission& e) { queue->push(e); });
}

RequestStream::~RequestStream() {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->wake.on_ready = nullptr;
  }
  if (open_ > 0) model_->service().cancel(id_);
}

void RequestStream::cancel() { model_->service().cancel(id_); }

void RequestStream::Queue::push(const Emission& e) {
  const std::lock_guard lock(mutex);
  arrivals.push_back({e.choice, e.token, e.finish, e.is_end,
                      e.logprobs != nullptr ? std::optional(*e.logprobs) : std::nullopt, std::string(e.error)});
  cached_tokens = std::max(cached_tokens, e.cached_tokens);
  if (e.token >= 0) ++generated_tokens;
  if (e.finish != FinishReason::None) --running;
  if (!ready()) return;
  arrived.notify_all();
  if (wake.on_ready != nullptr) wake.on_ready(wake.user);
}

RequestStream::Got RequestStream::next(std::optional<std::chrono::milliseconds> patience, StreamDelta& delta) {
  delta = {};
  bool any = false;
  while (!any) {
    if (open_ == 0) return Got::End;
    if (next_ == pending_.size()) {
      pending_.clear();
      next_ = 0;
      std::unique_lock lock(queue_->mutex);
      const auto ready = [this] { return queue_->ready(); };
      if (!patience)
        queue_->arrived.wait(lock, ready);
      else if (!queue_->arrived.wait_for(lock, *patience, ready))
        return Got::Nothing;
      pending_.swap(queue_->arrivals);
      if (pending_.empty()) return Got::End;
    }
    delta.choice = pending_[next_].choice;
    while (next_ < pending_.size() && pending_[next_].choice == delta.choice) any |= take(pending_[next_++], delta);
  }
  return Got::Delta;
}

bool RequestStream::take(Arrival& arrival, StreamDelta& delta) {
  Choice& choice = choices_[static_cast<size_t>(arrival.choice)];
  if (choice.ended) return false;  // tokens behind a stop string
  if (arrival.finish == FinishReason::Error || arrival.finish == FinishReason::NotInForm) {
    open_ = 0;
    model_->service().cancel(id_);
    fail(arrival.finish == FinishReason::Error ? ErrorKind::Io : ErrorKind::Usage, "{}", arrival.error);
  }
  if (arrival.token >= 0) {
    delta.tokens.push_back(arrival.token);
    if (arrival.logprobs) delta.logprobs.push_back(std::move(*arrival.logprobs));
    if (!arrival.is_end) say(choice, choice.text->push(arrival.token), false, delta);
    if (choice.text->stopped()) {
      if (arrival.finish == FinishReason::None) model_->service().cancel(id_, arrival.choice);
      arrival.finish = FinishReason::Stop;
    }
  }
  if (arrival.finish != FinishReason::None) finish(choice, arrival.finish, delta);
  return true;
}

void RequestStream::finish(Choice& choice, FinishReason reason, StreamDelta& delta) {
  say(choice, choice.text->stopped() ? "" : choice.text->finish(), true, delta);
  choice.ended = true;
  --open_;
  const bool called = choice.parser && choice.parser->calls() > 0;
  delta.finish = reason == FinishReason::Cancelled ? MILLRACE_STOPPED
                 : reason == FinishReason::Length  ? MILLRACE_LENGTH
                 : called                          ? MILLRACE_TOOL_CALLS
                                                   : MILLRACE_STOP;
}

void RequestStream::say(Choice& choice, std::string_view text, bool last, StreamDelta& delta) {
  if (!choice.parser) {
    delta.text += text;
    return;
  }
  std::vector<AnswerPiece> pieces = choice.parser->push(text);
  if (last) {
    for (AnswerPiece& piece : choice.parser->finish()) pieces.push_back(std::move(piece));
  }
  for (const AnswerPiece& piece : pieces) {
    if (one_call_ && piece.call > 0) continue;
    if (piece.kind == AnswerPiece::Kind::Content) delta.text += piece.text;
    if (piece.kind == AnswerPiece::Kind::Reasoning) delta.reasoning += piece.text;
    if (piece.kind == AnswerPiece::Kind::Call) {
      delta.tool_calls.push_back({{"index", piece.call},
                                  {"id", make_id("call_")},
                                  {"type", "function"},
                                  {"function", {{"name", piece.text}, {"arguments", ""}}}});
    }
    if (piece.kind == AnswerPiece::Kind::Arguments) {
      if (delta.tool_calls.empty() || delta.tool_calls.back()["index"] != piece.call)
        delta.tool_calls.push_back({{"index", piece.call}, {"function", {{"arguments", ""}}}});
      delta.tool_calls.back()["function"]["arguments"].get_ref<std::string&>() += piece.text;
    }
  }
}

millrace_usage RequestStream::usage() const {
  const std::lock_guard lock(queue_->mutex);
  return {sizeof(millrace_usage), queue_->prompt_tokens, queue_->cached_tokens, queue_->generated_tokens};
}

}  // namespace millrace
