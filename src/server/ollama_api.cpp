// Ollama's POST /api/chat and /api/generate: a conversation or a prompt, whole or as a stream of lines.
#include "server/answer_json.h"
#include "server/answer_sink.h"
#include "server/api.h"
#include "server/chat_prompt.h"
#include "server/infill.h"
#include "server/ollama_json.h"
#include "server/requests/ollama_request.h"
#include "server/response_format.h"
#include "server/start_answer.h"

namespace millrace {
namespace {

enum class Form { Chat, Generate };

class OllamaSink final : public AnswerSink {
 public:
  OllamaSink(std::shared_ptr<Call> call, const ServedModel& model, const OllamaRequest& r, const ChatPrompt& prompt,
             Form form)
      : AnswerSink(std::move(call), 1, prompt),
        tokenizer_(*model.text().tokenizer),
        model_(r.model.empty() || call_->cascade != nullptr ? model.id() : r.model),
        form_(form),
        stream_(r.stream) {}

  void on_begin() override {
    if (stream_) call_->begin_events();
  }

  void on_pause() override {
    if (!stream_) return;
    if (anything()) call_->event(take(false));
    call_->flush();
  }

  // The last line of a stream has totals only: some clients take no text from it.
  void on_end() override {
    if (!stream_) return call_->reply(take(true));
    if (anything()) call_->event(take(false));
    call_->event(take(true));
    call_->end_events();
  }

 private:
  using Clock = Call::Clock;

  bool anything() const { return !content_.empty() || !thinking_.empty() || !calls_.empty(); }

  // All that came since the last line.
  Json take(bool done) {
    Json json{{"model", model_}, {"created_at", ollama_time()}};
    if (form_ == Form::Chat) {
      Json message{{"role", "assistant"}, {"content", std::exchange(content_, {})}};
      if (!thinking_.empty()) message["thinking"] = std::exchange(thinking_, {});
      if (!calls_.empty()) message["tool_calls"] = std::exchange(calls_, Json::array());
      json["message"] = std::move(message);
    } else {
      json["response"] = std::exchange(content_, {});
      if (!thinking_.empty()) json["thinking"] = std::exchange(thinking_, {});
    }
    if (!logprobs_.empty()) json["logprobs"] = std::exchange(logprobs_, Json::array());
    json["done"] = done;
    if (done) add_totals(json);
    return json;
  }

  void add_totals(Json& json) const {
    const auto nanoseconds = [](Clock::duration time) { return std::chrono::nanoseconds(time).count(); };
    const Clock::time_point now = Clock::now(), first = first_.value_or(now);
    json["done_reason"] = finish_ == FinishReason::Length ? "length" : "stop";
    json["total_duration"] = nanoseconds(now - call_->arrived());
    json["load_duration"] = 0;
    json["prompt_eval_count"] = call_->usage.prompt_tokens;
    json["prompt_eval_duration"] = nanoseconds(first - call_->arrived());
    json["eval_count"] = call_->usage.completion_tokens;
    json["eval_duration"] = nanoseconds(now - first);
    add_cascade(json, call_->usage);
  }

  // A call goes out whole, when the next piece or the end shows that its arguments are complete.
  void end_call() {
    if (name_.empty()) return;
    Json arguments = Json::object();
    try {
      arguments = parse_json(arguments_.empty() ? "{}" : arguments_);
    } catch (const ApiError&) {  // cut by num_predict
    }
    calls_.push_back({{"function", {{"name", std::exchange(name_, {})}, {"arguments", std::move(arguments)}}}});
    arguments_.clear();
  }

  void on_logprobs(int, const std::vector<TokenLogprobs>& logprobs) override {
    for (const auto& one : logprobs) logprobs_.push_back(chat_logprob(tokenizer_, one));
  }

  void on_silence(int) override { note_time(); }
  void note_time() {
    if (!first_) first_ = Clock::now();
  }

  void on_piece(int, const AnswerPiece& piece) override {
    note_time();
    switch (piece.kind) {
      case AnswerPiece::Kind::Call:
        end_call();
        name_ = piece.text;
        return;
      case AnswerPiece::Kind::Arguments:
        arguments_ += piece.text;
        return;
      case AnswerPiece::Kind::Reasoning:
        thinking_ += piece.text;
        return;
      case AnswerPiece::Kind::Content:
        end_call();
        content_ += piece.text;
        return;
    }
  }

  void on_finish(int, FinishReason finish, bool) override {
    end_call();
    finish_ = finish;
  }

  const Tokenizer& tokenizer_;
  std::string model_;
  Form form_;
  bool stream_;
  std::string content_, thinking_, name_, arguments_;
  Json calls_ = Json::array(), logprobs_ = Json::array();
  std::optional<Clock::time_point> first_;  // the first token
  FinishReason finish_ = FinishReason::None;
};

// A request without a prompt loads the model, which is loaded already.
void answer_loaded(Call& call, const OllamaRequest& r, Form form) {
  Json json{{"model", r.model}, {"created_at", ollama_time()}};
  if (form == Form::Chat) {
    json["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    json["response"] = "";
  }
  json["done"] = true;
  json["done_reason"] = "load";
  call.reply(json);
}

// A text without the chat template: raw, between a prompt and a suffix, or for a model that has no template.
ChatPrompt text_prompt(const OllamaRequest& r, const ChatRequest& chat, const ServedModel& model) {
  ChatPrompt prompt;
  const Tokenizer& tokenizer = *model.text().tokenizer;
  prompt.tokens = r.suffix.empty()
                      ? tokenizer.encode(r.prompt, {.add_special = true, .parse_special = r.raw})
                      : infill_prompt(tokenizer, {.prefix = r.prompt, .suffix = r.suffix, .files = {}}, "suffix");
  prompt.grammar = answer_grammar(chat);
  return prompt;
}

void answer(const std::shared_ptr<Call>& call, ApiContext& context, const OllamaRequest& r, Form form) {
  context.model.require_ready();
  if (call->cascade == nullptr) check_ollama_name(context.model, r.model);
  const ChatRequest chat = to_chat_request(r);
  if (chat.messages.empty() && r.suffix.empty()) return answer_loaded(*call, r, form);
  start_answer(call, context, [r, chat, form](const std::shared_ptr<Call>& call, ServedModel& model) {
    const bool plain = form == Form::Generate && (r.raw || !r.suffix.empty() || !model.has_template());
    const ChatPrompt prompt = plain ? text_prompt(r, chat, model) : make_chat_prompt(chat, model);
    if (r.think == true && !prompt.parser.format.reasons) {
      fail_field("think", "unsupported_value", "\"{}\" does not support thinking", model.id());
    }
    PlannedAnswer answer;
    answer.requests.push_back(make_chat_engine_request(chat, prompt, model));
    answer.requests.back().client = fair_client(*call, "");
    answer.sink = std::make_unique<OllamaSink>(call, model, r, prompt, form);
    answer.options = {.prompt_field = form == Form::Chat ? "messages" : "prompt",
                      .stop = stop_strings(chat),
                      .visible = prompt.visible};
    return answer;
  });
}

}  // namespace

void answer_ollama_chat(const std::shared_ptr<Call>& call, ApiContext& context) {
  answer(call, context, ollama_chat_fields().read(call->body()), Form::Chat);
}

void answer_ollama_generate(const std::shared_ptr<Call>& call, ApiContext& context) {
  answer(call, context, ollama_generate_fields().read(call->body()), Form::Generate);
}

}  // namespace millrace
