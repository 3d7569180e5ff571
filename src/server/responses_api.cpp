// POST /v1/responses: chat in OpenAI's newer format. A background response writes its events to a KeptStream.
#include <algorithm>
#include <ctime>

#include "server/answer_json.h"
#include "server/answer_sink.h"
#include "server/api.h"
#include "server/base64.h"
#include "server/cascade.h"
#include "server/chat_prompt.h"
#include "server/conversation_cut.h"
#include "server/kept_streams.h"
#include "server/requests/custom_tools.h"
#include "server/requests/responses_request.h"
#include "server/start_answer.h"
#include "server/stored_responses.h"

namespace millrace {
namespace {

// Builds the list of output items, and sends an event for each change if streaming.
class ResponsesSink final : public AnswerSink {
 public:
  using Store = std::function<void(const Json& response)>;

  // `store` gets the whole response before the client does; null: it is not stored.
  ResponsesSink(std::shared_ptr<Call> call, const ServedModel& model, const ResponsesRequest& r,
                const ChatRequest& chat, const ChatPrompt& prompt, Store store, const std::string& id)
      : AnswerSink(std::move(call), 1, prompt),
        tokenizer_(*model.text().tokenizer),
        stream_(r.stream || r.background),
        summarises_(r.summarises()),
        keeps_reasoning_(r.includes(kIncludeReasoning)),
        obfuscate_(r.obfuscate),
        custom_tools_(chat.custom_tools),
        store_(std::move(store)) {
    response_ = {{"id", id},
                 {"object", "response"},
                 {"background", r.background},
                 {"created_at", call_->created()},
                 {"status", "in_progress"},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"instructions", r.instructions.empty() ? Json() : Json(r.instructions)},
                 {"max_output_tokens", r.max_output_tokens ? Json(*r.max_output_tokens) : Json()},
                 {"model", shown_name(*call_, model)},
                 {"output", Json::array()},
                 {"parallel_tool_calls", r.parallel_tool_calls},
                 {"previous_response_id", r.previous_response_id.empty() ? Json() : Json(r.previous_response_id)},
                 {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                 {"store", r.store},
                 {"temperature", r.temperature ? Json(*r.temperature) : Json()},
                 {"text", r.text.is_null() ? Json{{"format", {{"type", "text"}}}} : r.text},
                 {"tool_choice", r.tool_choice.is_null() ? Json("auto") : r.tool_choice},
                 {"tools", r.tools},
                 {"top_p", r.top_p ? Json(*r.top_p) : Json()},
                 {"truncation", r.truncation},
                 {"usage", nullptr},
                 {"metadata", r.metadata}};
    if (r.reasoning.is_object()) response_["reasoning"].update(r.reasoning);
  }

  void on_begin() override {
    if (!stream_) return;
    if (call_->streaming()) {  // the sink of the cascade's small model has begun it
      sequence_ = 2;
      return;
    }
    call_->begin_events();
    Json begun = response_;
    if (call_->cascade != nullptr) begun["model"] = call_->cascade->name;
    tell("response.created", {{"response", begun}});
    tell("response.in_progress", {{"response", begun}});
    call_->flush();  // clients have the id while the prompt is computed
  }
  bool begins_at_once() const override { return true; }

  void on_pause() override { call_->flush(); }

  void on_end() override {
    response_["usage"] = response_usage_json(call_->usage);
    if (store_) store_(response_);
    if (!stream_) return call_->reply(response_);
    tell(response_["status"] == "completed" ? "response.completed" : "response.incomplete", {{"response", response_}});
    call_->end_events();
  }

 private:
  enum class Item { None, Reasoning, Summary, Message, Call, CustomCall };

  void tell(const char* type, const Json& fields) {
    if (!stream_) return;
    Json event{{"type", type}, {"sequence_number", sequence_++}};
    event.update(fields);
    if (obfuscate_ && event.contains("delta")) event["obfuscation"] = make_id("").substr(sequence_ % 16);
    call_->event(event, type);
  }

  bool is_call() const { return item_ == Item::Call || item_ == Item::CustomCall; }
  bool is_thought() const { return item_ == Item::Reasoning || item_ == Item::Summary; }
  Json& item() { return response_["output"].back(); }
  Json& part() { return item()[item_ == Item::Summary ? "summary" : "content"].back(); }
  std::string& grown() {
    Json& text = item_ == Item::Call         ? item()["arguments"]
                 : item_ == Item::CustomCall ? item()["input"]
                                             : part()["text"];
    return text.get_ref<std::string&>();
  }
  Json place() {
    Json json{{"item_id", item()["id"]}, {"output_index", response_["output"].size() - 1}};
    if (!is_call()) json[item_ == Item::Summary ? "summary_index" : "content_index"] = 0;
    return json;
  }
  void tell_here(const char* type, const Json& fields) {
    if (!stream_) return;
    Json all = place();
    all.update(fields);
    tell(type, all);
  }

  void open(Item kind, const std::string& name = "") {
    close();
    item_ = kind;
    Json made;
    if (kind == Item::Call) {
      made = {
          {"id", make_id("fc_")}, {"type", "function_call"}, {"status", "in_progress"}, {"call_id", make_id("call_")},
          {"name", name},         {"arguments", ""}};
    } else if (kind == Item::CustomCall) {
      made = {{"id", make_id("ctc_")},
              {"type", "custom_tool_call"},
              {"status", "in_progress"},
              {"call_id", make_id("call_")},
              {"name", name},
              {"input", ""}};
    } else if (kind == Item::Message) {
      made = {{"id", make_id("msg_")}, {"type", "message"}, {"status", "in_progress"}, {"role", "assistant"}};
    } else {
      made = {{"id", make_id("rs_")}, {"type", "reasoning"}, {"status", "in_progress"}, {"summary", Json::array()}};
    }
    if (kind == Item::Message || kind == Item::Reasoning) made["content"] = Json::array();
    response_["output"].push_back(made);
    tell("response.output_item.added", {{"output_index", response_["output"].size() - 1}, {"item", item()}});
    if (is_call()) return;
    const char* type = kind == Item::Message   ? "output_text"
                       : kind == Item::Summary ? "summary_text"
                                               : "reasoning_text";
    Json part{{"type", type}, {"text", ""}};
    if (kind == Item::Message) {
      part["annotations"] = Json::array();
      part["logprobs"] = Json::array();
    }
    item()[kind == Item::Summary ? "summary" : "content"].push_back(part);
    tell_here(kind == Item::Summary ? "response.reasoning_summary_part.added" : "response.content_part.added",
              {{"part", part}});
  }

  void close(const char* status = "completed") {
    if (item_ == Item::None) return;
    if (item_ == Item::Call) {
      tell_here("response.function_call_arguments.done", {{"arguments", grown()}, {"name", item()["name"]}});
    } else if (item_ == Item::CustomCall) {
      grown() = custom_input(std::exchange(custom_, {}));
      tell_here("response.custom_tool_call_input.delta", {{"delta", grown()}});
      tell_here("response.custom_tool_call_input.done", {{"input", grown()}});
    } else if (item_ == Item::Message) {
      tell_here("response.output_text.done", {{"text", grown()}, {"logprobs", part()["logprobs"]}});
      tell_here("response.content_part.done", {{"part", part()}});
    } else if (item_ == Item::Summary) {
      tell_here("response.reasoning_summary_text.done", {{"text", grown()}});
      tell_here("response.reasoning_summary_part.done", {{"part", part()}});
    } else {
      tell_here("response.reasoning_text.done", {{"text", grown()}});
      tell_here("response.content_part.done", {{"part", part()}});
    }
    if (keeps_reasoning_ && is_thought()) item()["encrypted_content"] = to_base64(grown());
    item()["status"] = status;
    tell("response.output_item.done", {{"output_index", response_["output"].size() - 1}, {"item", item()}});
    item_ = Item::None;
  }

  void on_logprobs(int, const std::vector<TokenLogprobs>& logprobs) override {
    for (const auto& one : logprobs) logprobs_.push_back(chat_logprob(tokenizer_, one));
  }

  // Only output text has log-probabilities here. Those of reasoning, tool calls and their markers are dropped.
  void on_silence(int choice) override {
    if (in_reasoning(choice) || is_call()) logprobs_.clear();
  }

  void on_piece(int, const AnswerPiece& piece) override {
    if (piece.kind != AnswerPiece::Kind::Content) logprobs_.clear();
    switch (piece.kind) {
      case AnswerPiece::Kind::Call:
        return open(is_custom(piece.text) ? Item::CustomCall : Item::Call, piece.text);
      case AnswerPiece::Kind::Arguments:
        if (item_ == Item::CustomCall) {
          custom_ += piece.text;
          return;
        }
        grown() += piece.text;
        return tell_here("response.function_call_arguments.delta", {{"delta", piece.text}});
      case AnswerPiece::Kind::Reasoning:
        if (!is_thought()) open(summarises_ ? Item::Summary : Item::Reasoning);
        grown() += piece.text;
        return tell_here(summarises_ ? "response.reasoning_summary_text.delta" : "response.reasoning_text.delta",
                         {{"delta", piece.text}});
      case AnswerPiece::Kind::Content: {
        if (item_ != Item::Message) open(Item::Message);
        grown() += piece.text;
        Json logprobs = std::exchange(logprobs_, Json::array());
        for (const Json& one : logprobs) part()["logprobs"].push_back(one);
        return tell_here("response.output_text.delta", {{"delta", piece.text}, {"logprobs", std::move(logprobs)}});
      }
    }
  }

  bool is_custom(const std::string& tool) const {
    return std::find(custom_tools_.begin(), custom_tools_.end(), tool) != custom_tools_.end();
  }

  void on_finish(int, FinishReason finish, bool) override {
    const bool cut = finish == FinishReason::Length;
    if (response_["output"].empty()) open(Item::Message);
    close(cut ? "incomplete" : "completed");
    response_["status"] = cut ? "incomplete" : "completed";
    if (cut) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  }

  const Tokenizer& tokenizer_;
  bool stream_;
  bool summarises_;       // reasoning goes into the item's summary
  bool keeps_reasoning_;  // and into encrypted_content, which clients send back
  bool obfuscate_;
  std::vector<std::string> custom_tools_;
  std::string custom_;  // arguments of a custom tool's call; its text goes out when the call is whole
  Store store_;
  Json response_;
  Item item_ = Item::None;
  Json logprobs_ = Json::array();  // of text not yet sent
  int sequence_ = 0;
};

// Puts the items of the previous response before the input. Returns the function that stores the new one.
ResponsesSink::Store prepare_turn(ResponsesRequest& r, const Call& call, ApiContext& context) {
  StoredTurn turn{.owner = call.client, .input = {}, .response = {}};
  if (!r.previous_response_id.empty()) turn.previous = context.stored->previous(r.previous_response_id, call.client);
  if (r.store) turn.input = to_text(listed_input(r.input));
  if (turn.previous) {
    Json items = items_with_answer(*turn.previous);
    for (Json& item : listed_input(r.input)) items.push_back(std::move(item));
    r.input = std::move(items);
  }
  if (!r.store) return nullptr;
  return [turn = std::move(turn), stored = context.stored](const Json& response) mutable {
    turn.response = to_text(response);
    stored->add(response["id"], std::move(turn));
  };
}

}  // namespace

void answer_responses(const std::shared_ptr<Call>& call, ApiContext& context) {
  ResponsesRequest r = responses_fields().read(call->body());
  check_model(*call, context.model, r.model);
  const auto store = prepare_turn(r, *call, context);
  const std::string id = make_id("resp_");
  const auto make = [r, store, id, asked = to_chat_request(r)](const std::shared_ptr<Call>& call, ServedModel& model) {
    ChatRequest chat = asked;
    const ChatPrompt prompt = r.truncation == "auto" ? prompt_cut_to_fit(chat, model) : make_chat_prompt(chat, model);
    PlannedAnswer answer;
    answer.requests.push_back(make_chat_engine_request(chat, prompt, model));
    answer.requests.back().client = fair_client(*call, r.user);
    answer.sink = std::make_unique<ResponsesSink>(call, model, r, chat, prompt, store, id);
    answer.options = {.prompt_field = "input", .stop = {}, .visible = prompt.visible};
    return answer;
  };
  const auto start = [&](const std::shared_ptr<Call>& reader) {
    start_answer(reader, context, with_names(make, in_responses_names));
  };
  if (!r.background) return start(call);
  const auto kept = context.kept.begin(call->client);
  const std::shared_ptr<Call> inner = call->continued_on(kept);
  kept->belongs_to(inner);
  try {
    start(inner);
  } catch (...) {
    inner->drop();  // the outer call answers
    throw;
  }
  context.kept.keep(id, kept);
  call->model_lease.reset();  // the inner call has one, and a cascade may give that up
  if (!r.stream) return call->reply(kept->begun());
  kept->attach(call, 0);
}

void answer_input_tokens(const std::shared_ptr<Call>& call, ApiContext& context) {
  ResponsesRequest r = responses_fields().read(call->body());
  ServedModel& model = context.model;
  model.require_ready();
  model.check_name(r.model);
  r.store = false;
  prepare_turn(r, *call, context);
  const ChatRequest chat = to_chat_request(r);
  try {
    const size_t tokens = make_chat_prompt(chat, model).tokens.size();
    call->reply(Json{{"object", "response.input_tokens"}, {"input_tokens", tokens}});
  } catch (const ApiError& e) {
    throw ApiError(in_responses_names(e.problem()));
  }
}

Schema input_tokens_answer_schema() {
  return Schema::object(
      {{"object", Schema::word({"response.input_tokens"}), true}, {"input_tokens", Schema::integer(0), true}});
}

Schema responses_answer_schema() {
  const auto word = [](const char* value) { return Schema::word({value}); };
  const auto details = [](const char* name) { return Schema::object({{name, Schema::integer(0), true}}); };
  const auto item =
      Schema::object({{"id", Schema::string(), true},
                      {"type", Schema::word({"message", "function_call", "custom_tool_call", "reasoning"}), true},
                      {"status", Schema::word({"completed", "incomplete"}), true}},
                     Schema::Others::Allowed);
  const auto usage = Schema::object({{"input_tokens", Schema::integer(0), true},
                                     {"input_tokens_details", details("cached_tokens"), true},
                                     {"output_tokens", Schema::integer(0), true},
                                     {"output_tokens_details", details("reasoning_tokens"), true},
                                     {"total_tokens", Schema::integer(0), true},
                                     {"cascade", cascade_schema()}});
  return Schema::object(
      {{"id", Schema::string(), true},
       {"object", word("response"), true},
       {"created_at", Schema::integer(0), true},
       {"status", Schema::word({"in_progress", "completed", "incomplete", "failed", "cancelled"}), true},
       {"model", Schema::string(), true},
       {"output", Schema::array(item), true},
       {"usage", usage.or_null(), true}},
      Schema::Others::Allowed);
}

}  // namespace millrace
