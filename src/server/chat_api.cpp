// POST /v1/chat/completions.
#include <algorithm>
#include <ctime>

#include "base/json_text.h"
#include "server/answer_json.h"
#include "server/answer_sink.h"
#include "server/api.h"
#include "server/chat_prompt.h"
#include "server/requests/custom_tools.h"
#include "server/start_answer.h"

namespace millrace {
namespace {

// Fields at the start of every chat answer and chunk.
struct ChatHead {
  std::string id = make_id("chatcmpl-");
  int64_t created = std::time(nullptr);
  std::string model;

  Json json(const char* object) const {
    return {{"id", id}, {"object", object}, {"created", created}, {"model", model}};
  }
};

Json call_json(const AnswerPiece& piece, bool custom) {
  if (custom) return {{"id", make_id("call_")}, {"type", "custom"}, {"custom", {{"name", piece.text}, {"input", ""}}}};
  return {{"id", make_id("call_")}, {"type", "function"}, {"function", {{"name", piece.text}, {"arguments", ""}}}};
}

// How calls are written.
struct CallForms {
  bool legacy = false;              // the older `functions`
  std::vector<std::string> custom;  // names of tools that take free text

  bool is_custom(const std::string& tool) const {
    return std::find(custom.begin(), custom.end(), tool) != custom.end();
  }
};

// finish_reason; a request with the older `functions` has its own word for calls.
const char* chat_finish_word(FinishReason finish, bool called_tools, bool legacy) {
  const bool calls = called_tools && finish != FinishReason::Length;
  return calls && legacy ? "function_call" : finish_word(finish, called_tools);
}

class ChatWhole final : public AnswerSink {
 public:
  ChatWhole(std::shared_ptr<Call> call, const ServedModel& model, const ChatRequest& r, const ChatPrompt& prompt)
      : AnswerSink(std::move(call), r.n, prompt),
        tokenizer_(*model.text().tokenizer),
        forms_{r.legacy_functions, r.custom_tools},
        choices_(static_cast<size_t>(r.n)) {
    head_.model = shown_name(*call_, model);
  }

  void on_end() override {
    Json json = head_.json("chat.completion");
    json["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& c = choices_[i];
      Json message{{"role", "assistant"},
                   {"content", c.calls.empty() || !c.content.empty() ? Json(c.content) : Json()}};
      message["refusal"] = nullptr;
      if (!c.reasoning.empty()) message["reasoning_content"] = c.reasoning;
      for (Json& call : c.calls) {
        if (call.contains("custom")) call["custom"]["input"] = custom_input(call["custom"]["input"]);
      }
      if (!c.calls.empty() && forms_.legacy) {
        message["function_call"] = c.calls[0]["function"];
      } else if (!c.calls.empty()) {
        message["tool_calls"] = c.calls;
      }
      Json logprobs = c.logprobs.is_null() ? Json() : Json{{"content", c.logprobs}, {"refusal", nullptr}};
      json["choices"].push_back(
          {{"index", i}, {"message", message}, {"logprobs", std::move(logprobs)}, {"finish_reason", c.finish}});
    }
    json["usage"] = usage_json(call_->usage);
    call_->reply(json);
  }

 private:
  struct Choice {
    std::string content, reasoning, finish;
    Json calls = Json::array(), logprobs;
  };

  void on_logprobs(int choice, const std::vector<TokenLogprobs>& logprobs) override {
    for (const auto& one : logprobs) at(choice).logprobs.push_back(chat_logprob(tokenizer_, one));
  }

  void on_piece(int choice, const AnswerPiece& piece) override {
    Choice& c = at(choice);
    switch (piece.kind) {
      case AnswerPiece::Kind::Content:
        c.content += piece.text;
        break;
      case AnswerPiece::Kind::Reasoning:
        c.reasoning += piece.text;
        break;
      case AnswerPiece::Kind::Call:
        c.calls.push_back(call_json(piece, forms_.is_custom(piece.text)));
        break;
      case AnswerPiece::Kind::Arguments:
        arguments(c.calls.back()).get_ref<std::string&>() += piece.text;
        break;
    }
  }

  void on_finish(int choice, FinishReason finish, bool called_tools) override {
    at(choice).finish = chat_finish_word(finish, called_tools, forms_.legacy);
  }

  // A custom call's `input` holds its arguments until the end.
  static Json& arguments(Json& call) {
    return call.contains("custom") ? call["custom"]["input"] : call["function"]["arguments"];
  }

  Choice& at(int choice) { return choices_[static_cast<size_t>(choice)]; }

  const Tokenizer& tokenizer_;
  const CallForms forms_;
  ChatHead head_;
  std::vector<Choice> choices_;
};

class ChatStream final : public AnswerSink {
 public:
  ChatStream(std::shared_ptr<Call> call, const ServedModel& model, const ChatRequest& r, const ChatPrompt& prompt)
      : AnswerSink(std::move(call), r.n, prompt),
        tokenizer_(*model.text().tokenizer),
        include_usage_(r.include_usage),
        continuous_usage_(r.continuous_usage),
        tools_(prompt.parser.tools),
        forms_{r.legacy_functions, r.custom_tools},
        choices_(static_cast<size_t>(r.n)) {
    head_.model = shown_name(*call_, model);
    chunk_ = unclosed(head_.json(kObject)) + ",\"choices\":[{\"index\":";
  }

  void on_begin() override { call_->begin_events(); }
  void on_pause() override { call_->flush(); }

  void on_end() override {
    if (include_usage_) {
      Json json = head_.json(kObject);
      json["choices"] = Json::array();
      json["usage"] = usage_json(call_->usage);
      call_->event(json);
    }
    call_->raw_event("[DONE]");
    call_->end_events();
  }

 private:
  struct Choice {
    bool has_role = false;
    std::string custom;    // arguments of a call of a custom tool: its text goes out when the call is whole
    int custom_call = -1;  // its number; -1: none
    Json logprobs;         // go out with the next chunk
  };

  void send(int index, Json delta, const char* finish = nullptr) {
    Choice& c = choices_[static_cast<size_t>(index)];
    if (!std::exchange(c.has_role, true)) {
      Json first{{"role", "assistant"}};
      if (!delta.contains("content"))
        first["content"] = delta.contains("tool_calls") || delta.contains("function_call") ? Json() : Json("");
      first.update(delta);
      delta = std::move(first);
    }
    send_text(index, to_text(delta), finish);
  }

  // Runs for each token while every core computes, so plain text is written without building JSON.
  void send_content(int index, std::string_view text) {
    if (!choices_[static_cast<size_t>(index)].has_role) return send(index, {{"content", text}});
    delta_ = "{\"content\":";
    append_json_string(text, delta_);
    send_text(index, delta_ += '}');
  }

  // The part common to all chunks is written once.
  void send_text(int index, std::string_view delta, const char* finish = nullptr) {
    Choice& c = choices_[static_cast<size_t>(index)];
    event_.assign(chunk_).append(std::to_string(index)).append(",\"delta\":").append(delta).append(",\"logprobs\":");
    if (c.logprobs.is_null()) {
      event_ += "null";
    } else {
      event_ += to_text(Json{{"content", std::exchange(c.logprobs, {})}, {"refusal", nullptr}});
    }
    event_ += ",\"finish_reason\":";
    event_ += finish == nullptr ? "null" : to_text(finish);
    event_ += "}]";
    if (continuous_usage_) {
      event_ += ",\"usage\":" + to_text(usage_json(call_->usage));
    } else if (include_usage_) {
      event_ += ",\"usage\":null";
    }
    call_->raw_event(event_ += '}');
  }

  void on_logprobs(int choice, const std::vector<TokenLogprobs>& logprobs) override {
    for (const auto& one : logprobs) {
      choices_[static_cast<size_t>(choice)].logprobs.push_back(chat_logprob(tokenizer_, one));
    }
  }

  void on_piece(int choice, const AnswerPiece& piece) override {
    switch (piece.kind) {
      case AnswerPiece::Kind::Content:
        return send_content(choice, piece.text);
      case AnswerPiece::Kind::Reasoning:
        return send(choice, {{"reasoning_content", piece.text}});
      case AnswerPiece::Kind::Call: {
        end_custom(choice);
        if (forms_.legacy) return send(choice, {{"function_call", {{"name", piece.text}, {"arguments", ""}}}});
        const bool custom = forms_.is_custom(piece.text);
        if (custom) choices_[static_cast<size_t>(choice)].custom_call = piece.call;
        Json begun{{"index", piece.call}};
        begun.update(call_json(piece, custom));
        return send(choice, {{"tool_calls", Json::array({begun})}});
      }
      case AnswerPiece::Kind::Arguments: {
        Choice& c = choices_[static_cast<size_t>(choice)];
        if (c.custom_call >= 0) {
          c.custom += piece.text;
          return;
        }
        if (forms_.legacy) return send(choice, {{"function_call", {{"arguments", piece.text}}}});
        const Json more{{"index", piece.call}, {"function", {{"arguments", piece.text}}}};
        return send(choice, {{"tool_calls", Json::array({more})}});
      }
    }
  }

  // Sends an empty chunk, so that clients see every token's time; but never between the pieces of a tool call.
  void on_silence(int choice) override {
    if (!tools_) send_content(choice, "");
  }

  void on_finish(int choice, FinishReason finish, bool called_tools) override {
    end_custom(choice);
    send(choice, Json::object(), chat_finish_word(finish, called_tools, forms_.legacy));
  }

  void end_custom(int choice) {
    Choice& c = choices_[static_cast<size_t>(choice)];
    const int call = std::exchange(c.custom_call, -1);
    if (call < 0) return;
    const Json more{{"index", call}, {"custom", {{"input", custom_input(std::exchange(c.custom, {}))}}}};
    send(choice, {{"tool_calls", Json::array({more})}});
  }

  static constexpr const char* kObject = "chat.completion.chunk";

  const Tokenizer& tokenizer_;
  ChatHead head_;
  std::string chunk_;          // the common beginning of all chunks
  std::string delta_, event_;  // reused buffers
  bool include_usage_, continuous_usage_, tools_;
  CallForms forms_;
  std::vector<Choice> choices_;
};

}  // namespace

std::string fair_client(const Call& call, const std::string& user) {
  return user.empty() ? call.client : call.client + "/" + user.substr(0, 64);
}

void answer_chat(const std::shared_ptr<Call>& call, ApiContext& context) {
  const ChatRequest request = chat_fields().read(call->body());
  check_model(*call, context.model, request.model);
  start_answer(call, context, [request](const std::shared_ptr<Call>& call, ServedModel& model) {
    const ChatPrompt prompt = make_chat_prompt(request, model);
    PlannedAnswer answer;
    answer.requests.push_back(make_chat_engine_request(request, prompt, model));
    answer.requests.back().client = fair_client(*call, request.user);
    if (request.stream) {
      answer.sink = std::make_unique<ChatStream>(call, model, request, prompt);
    } else {
      answer.sink = std::make_unique<ChatWhole>(call, model, request, prompt);
    }
    answer.options = {.prompt_field = "messages",
                      .stop = stop_strings(request),
                      .min_tokens = request.min_tokens,
                      .visible = prompt.visible};
    return answer;
  });
}

Schema chat_answer_schema() {
  const auto function = Schema::object({{"name", Schema::string(), true}, {"arguments", Schema::string(), true}});
  const auto custom = Schema::object({{"name", Schema::string(), true}, {"input", Schema::string(), true}});
  const auto tool_call = Schema::any_of(
      {Schema::object(
           {{"id", Schema::string(), true}, {"type", Schema::word({"function"}), true}, {"function", function, true}}),
       Schema::object(
           {{"id", Schema::string(), true}, {"type", Schema::word({"custom"}), true}, {"custom", custom, true}})});
  const auto message = Schema::object({{"role", Schema::word({"assistant"}), true},
                                       {"content", Schema::string().or_null(), true},
                                       {"refusal", Schema::string().or_null()},
                                       {"reasoning_content", Schema::string()},
                                       {"tool_calls", Schema::array(tool_call)},
                                       {"function_call", function}});
  const auto choice =
      Schema::object({{"index", Schema::integer(0), true},
                      {"message", message, true},
                      {"logprobs", chat_logprobs_schema().or_null(), true},
                      {"finish_reason", Schema::word({"stop", "length", "tool_calls", "function_call"}), true}});
  return Schema::object({{"id", Schema::string(), true},
                         {"object", Schema::word({"chat.completion"}), true},
                         {"created", Schema::integer(0), true},
                         {"model", Schema::string(), true},
                         {"choices", Schema::array(choice), true},
                         {"usage", usage_schema(), true}});
}

}  // namespace millrace
