// Anthropic's POST /v1/messages and /v1/messages/count_tokens.
#include "server/answer_json.h"
#include "server/answer_sink.h"
#include "server/api.h"
#include "server/chat_prompt.h"
#include "server/requests/messages_request.h"
#include "server/start_answer.h"

namespace millrace {
namespace {

// Builds the blocks of the message, and sends an event for each change if streaming.
class MessagesSink final : public AnswerSink {
 public:
  MessagesSink(std::shared_ptr<Call> call, const ServedModel& model, const MessagesRequest& r, const ChatPrompt& prompt)
      : AnswerSink(std::move(call), 1, prompt),
        stream_(r.stream),
        shows_thinking_(!r.thinking.is_object() || r.thinking.value("display", Json()) != "omitted"),
        max_tokens_(r.max_tokens) {
    message_ = {{"id", make_id("msg_")},   {"type", "message"},
                {"role", "assistant"},     {"model", shown_name(*call_, model)},
                {"content", blocks_},      {"stop_reason", nullptr},
                {"stop_sequence", nullptr}};
  }

  void on_begin() override {
    if (!stream_) return;
    call_->begin_events();
    Json message = message_;
    message["usage"] = usage();
    tell("message_start", {{"message", message}});
    tell("ping", Json::object());
    call_->flush();
  }

  void on_pause() override { call_->flush(); }

  void on_end() override {
    if (!stream_) {
      message_["content"] = blocks_;
      message_["usage"] = usage();
      return call_->reply(message_);
    }
    const Json delta{{"stop_reason", message_["stop_reason"]}, {"stop_sequence", message_["stop_sequence"]}};
    tell("message_delta", {{"delta", delta}, {"usage", usage()}});
    tell("message_stop", Json::object());
    call_->end_events();
  }

 private:
  enum class Block { None, Text, Thinking, Tool };

  // Tokens from the prefix tree count as read from the cache.
  Json usage() const {
    const Usage& u = call_->usage;
    Json json{{"input_tokens", u.prompt_tokens - u.cached_tokens},
              {"cache_creation_input_tokens", 0},
              {"cache_read_input_tokens", u.cached_tokens},
              {"output_tokens", u.completion_tokens}};
    add_cascade(json, u);
    return json;
  }

  void tell(const char* type, const Json& fields) {
    if (!stream_) return;
    Json event{{"type", type}};
    event.update(fields);
    call_->event(event, type);
  }
  void tell_delta(Json delta) {
    tell("content_block_delta", {{"index", blocks_.size() - 1}, {"delta", std::move(delta)}});
  }

  void open(Block kind, const std::string& name = "") {
    close();
    kind_ = kind;
    if (kind == Block::Tool) {
      blocks_.push_back({{"type", "tool_use"}, {"id", make_id("toolu_")}, {"name", name}, {"input", Json::object()}});
    } else if (kind == Block::Thinking) {
      blocks_.push_back({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    } else {
      blocks_.push_back({{"type", "text"}, {"text", ""}});
    }
    tell("content_block_start", {{"index", blocks_.size() - 1}, {"content_block", blocks_.back()}});
  }

  void close() {
    if (kind_ == Block::None) return;
    if (kind_ == Block::Thinking) {  // clients send blocks back only with a signature; nothing checks it
      blocks_.back()["signature"] = make_id("sig_");
      tell_delta({{"type", "signature_delta"}, {"signature", blocks_.back()["signature"]}});
    }
    if (kind_ == Block::Tool) blocks_.back()["input"] = parsed(std::exchange(input_, {}));
    tell("content_block_stop", {{"index", blocks_.size() - 1}});
    kind_ = Block::None;
  }

  // A call that max_tokens cut has no valid input.
  static Json parsed(const std::string& input) {
    try {
      return input.empty() ? Json::object() : parse_json(input);
    } catch (const ApiError&) {
      return Json::object();
    }
  }

  void on_logprobs(int, const std::vector<TokenLogprobs>&) override {}

  void on_piece(int, const AnswerPiece& piece) override {
    switch (piece.kind) {
      case AnswerPiece::Kind::Call:
        return open(Block::Tool, piece.text);
      case AnswerPiece::Kind::Arguments:
        input_ += piece.text;
        return tell_delta({{"type", "input_json_delta"}, {"partial_json", piece.text}});
      case AnswerPiece::Kind::Reasoning:
        if (kind_ != Block::Thinking) open(Block::Thinking);
        if (!shows_thinking_) return;
        blocks_.back()["thinking"].get_ref<std::string&>() += piece.text;
        return tell_delta({{"type", "thinking_delta"}, {"thinking", piece.text}});
      case AnswerPiece::Kind::Content:
        if (kind_ != Block::Text) open(Block::Text);
        blocks_.back()["text"].get_ref<std::string&>() += piece.text;
        return tell_delta({{"type", "text_delta"}, {"text", piece.text}});
    }
  }

  void on_finish(int, FinishReason finish, bool called_tools) override {
    close();
    const char* reason = called_tools ? "tool_use" : "end_turn";
    if (!stopped_by().empty()) {
      reason = "stop_sequence";
      message_["stop_sequence"] = stopped_by();
    }
    if (finish == FinishReason::Length) {
      reason = call_->usage.completion_tokens < max_tokens_ ? "model_context_window_exceeded" : "max_tokens";
    }
    message_["stop_reason"] = reason;
  }

  bool stream_, shows_thinking_;
  int64_t max_tokens_;
  Json message_, blocks_ = Json::array();
  Block kind_ = Block::None;
  std::string input_;  // of the open tool block, as JSON text
};

// Errors of the chat request in this protocol's names.
ApiProblem in_messages_names(ApiProblem problem) {
  const auto rename = [&](std::string_view from, std::string_view to) {
    const size_t at = problem.message.find(from);
    if (at != std::string::npos) problem.message.replace(at, from.size(), to);
  };
  rename("'stop'", "'stop_sequences'");
  rename("'response_format'", "'output_config.format'");
  return problem;
}

}  // namespace

void answer_messages(const std::shared_ptr<Call>& call, ApiContext& context) {
  const MessagesRequest r = messages_fields().read(call->body());
  check_model(*call, context.model, r.model);
  const auto make = [r, asked = to_chat_request(r)](const std::shared_ptr<Call>& call, ServedModel& model) {
    ChatRequest chat = asked;
    const ChatPrompt prompt = make_chat_prompt(chat, model);
    // max_tokens is required, and clients send a large one. It does not reserve room: the answer may fill the context.
    const auto room = model.context() - static_cast<int64_t>(prompt.tokens.size());
    if (r.max_tokens <= room) chat.max_tokens = r.max_tokens;
    PlannedAnswer answer;
    answer.requests.push_back(make_chat_engine_request(chat, prompt, model));
    answer.requests.back().client = fair_client(*call, r.user);
    answer.sink = std::make_unique<MessagesSink>(call, model, r, prompt);
    answer.options = {.prompt_field = "messages", .stop = stop_strings(chat), .visible = prompt.visible};
    return answer;
  };
  start_answer(call, context, with_names(make, in_messages_names));
}

void answer_count_tokens(const std::shared_ptr<Call>& call, ApiContext& context) {
  const MessagesRequest r = count_tokens_fields().read(call->body());
  ServedModel& model = context.model;
  model.require_ready();
  model.check_name(r.model);
  ChatRequest chat = to_chat_request(r);
  chat.reasoning_optional = true;  // thinking is checked where it is wanted
  call->reply(Json{{"input_tokens", make_chat_prompt(chat, model).tokens.size()}});
}

Schema messages_answer_schema() {
  const auto block =
      Schema::object({{"type", Schema::word({"text", "thinking", "tool_use"}), true}}, Schema::Others::Allowed);
  const auto usage = Schema::object({{"input_tokens", Schema::integer(0), true},
                                     {"cache_creation_input_tokens", Schema::integer(0), true},
                                     {"cache_read_input_tokens", Schema::integer(0), true},
                                     {"output_tokens", Schema::integer(0), true},
                                     {"cascade", cascade_schema()}});
  return Schema::object(
      {{"id", Schema::string(), true},
       {"type", Schema::word({"message"}), true},
       {"role", Schema::word({"assistant"}), true},
       {"model", Schema::string(), true},
       {"content", Schema::array(block), true},
       {"stop_reason",
        Schema::word({"end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"}), true},
       {"stop_sequence", Schema::string().or_null(), true},
       {"usage", usage, true}});
}

Schema count_tokens_answer_schema() { return Schema::object({{"input_tokens", Schema::integer(0), true}}); }

}  // namespace millrace
