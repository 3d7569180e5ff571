// POST /v1/responses: chat in OpenAI's newer format. A background response writes its events to a KeptStream.
#include <ctime>

#include "server/answer_json.h"
#include "server/answer_sink.h"
#include "server/api.h"
#include "server/base64.h"
#include "server/chat_prompt.h"
#include "server/kept_streams.h"
#include "server/requests/responses_request.h"

namespace millrace {
namespace {

// Builds the list of output items, and sends an event for each change if streaming.
class ResponsesSink final : public AnswerSink {
 public:
  ResponsesSink(std::shared_ptr<Call> call, const ServedModel& model, const ResponsesRequest& r,
                const ChatPrompt& prompt)
      : AnswerSink(std::move(call), 1, prompt),
        tokenizer_(*model.text().tokenizer),
        stream_(r.stream || r.background),
        summarises_(r.summarises()),
        keeps_reasoning_(r.includes(kIncludeReasoning)),
        obfuscate_(r.obfuscate) {
    response_ = {{"id", make_id("resp_")},
                 {"object", "response"},
                 {"background", r.background},
                 {"created_at", std::time(nullptr)},
                 {"status", "in_progress"},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"instructions", r.instructions.empty() ? Json() : Json(r.instructions)},
                 {"max_output_tokens", r.max_output_tokens ? Json(*r.max_output_tokens) : Json()},
                 {"model", shown_name(*call_, model)},
                 {"output", Json::array()},
                 {"parallel_tool_calls", r.parallel_tool_calls},
                 {"previous_response_id", nullptr},
                 {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                 {"store", r.background},
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
    call_->begin_events();
    tell("response.created", {{"response", response_}});
    tell("response.in_progress", {{"response", response_}});
    call_->flush();  // clients have the id while the prompt is computed
  }

  std::string id() const { return response_["id"]; }

  void on_pause() override { call_->flush(); }

  void on_end() override {
    const Usage& u = call_->usage;
    response_["usage"] = {{"input_tokens", u.prompt_tokens},
                          {"input_tokens_details", {{"cached_tokens", u.cached_tokens}}},
                          {"output_tokens", u.completion_tokens},
                          {"output_tokens_details", {{"reasoning_tokens", u.reasoning_tokens}}},
                          {"total_tokens", u.prompt_tokens + u.completion_tokens}};
    if (!stream_) return call_->reply(response_);
    tell(response_["status"] == "completed" ? "response.completed" : "response.incomplete", {{"response", response_}});
    call_->end_events();
  }

 private:
  enum class Item { None, Reasoning, Summary, Message, Call };

  void tell(const char* type, const Json& fields) {
    if (!stream_) return;
    Json event{{"type", type}, {"sequence_number", sequence_++}};
    event.update(fields);
    if (obfuscate_ && event.contains("delta")) event["obfuscation"] = make_id("").substr(sequence_ % 16);
    call_->event(event, type);
  }

  bool is_thought() const { return item_ == Item::Reasoning || item_ == Item::Summary; }
  Json& item() { return response_["output"].back(); }
  Json& part() { return item()[item_ == Item::Summary ? "summary" : "content"].back(); }
  std::string& grown() { return (item_ == Item::Call ? item()["arguments"] : part()["text"]).get_ref<std::string&>(); }
  Json place() {
    Json json{{"item_id", item()["id"]}, {"output_index", response_["output"].size() - 1}};
    if (item_ != Item::Call) json[item_ == Item::Summary ? "summary_index" : "content_index"] = 0;
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
    } else if (kind == Item::Message) {
      made = {{"id", make_id("msg_")}, {"type", "message"}, {"status", "in_progress"}, {"role", "assistant"}};
    } else {
      made = {{"id", make_id("rs_")}, {"type", "reasoning"}, {"status", "in_progress"}, {"summary", Json::array()}};
    }
    if (kind == Item::Message || kind == Item::Reasoning) made["content"] = Json::array();
    response_["output"].push_back(made);
    tell("response.output_item.added", {{"output_index", response_["output"].size() - 1}, {"item", item()}});
    if (kind == Item::Call) return;
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
    if (in_reasoning(choice) || item_ == Item::Call) logprobs_.clear();
  }

  void on_piece(int, const AnswerPiece& piece) override {
    if (piece.kind != AnswerPiece::Kind::Content) logprobs_.clear();
    switch (piece.kind) {
      case AnswerPiece::Kind::Call:
        return open(Item::Call, piece.text);
      case AnswerPiece::Kind::Arguments:
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
  Json response_;
  Item item_ = Item::None;
  Json logprobs_ = Json::array();  // of text not yet sent
  int sequence_ = 0;
};

}  // namespace

void answer_responses(const std::shared_ptr<Call>& call, ApiContext& context) {
  const ResponsesRequest r = responses_fields().read(call->body());
  ServedModel& model = context.model;
  model.require_ready();
  model.check_name(r.model);
  const ChatRequest chat = to_chat_request(r);
  try {
    const ChatPrompt prompt = make_chat_prompt(chat, model);
    std::vector<Request> requests{make_chat_engine_request(chat, prompt, model)};
    requests.back().client = fair_client(*call, r.user);
    const GenerationOptions options{.prompt_field = "input", .stop = {}, .visible = prompt.visible};
    const auto begin = [&](const std::shared_ptr<Call>& reader, std::unique_ptr<ResponsesSink> sink) {
      std::make_shared<Generation>(reader, model, context.workers, context.metrics, options)
          ->start(std::move(requests), std::move(sink));
    };
    if (!r.background) return begin(call, std::make_unique<ResponsesSink>(call, model, r, prompt));
    const auto kept = context.kept.begin(call->client);
    const std::shared_ptr<Call> inner = call->continued_on(kept);
    kept->belongs_to(inner->shared_exchange());
    auto sink = std::make_unique<ResponsesSink>(inner, model, r, prompt);
    const std::string id = sink->id();
    begin(inner, std::move(sink));
    context.kept.keep(id, kept);
    if (!r.stream) return call->reply(kept->response());
    kept->attach(call, 0);
  } catch (const ApiError& e) {
    throw ApiError(in_responses_names(e.problem()));
  }
}

Schema responses_answer_schema() {
  const auto word = [](const char* value) { return Schema::word({value}); };
  const auto details = [](const char* name) { return Schema::object({{name, Schema::integer(0), true}}); };
  const auto item = Schema::object({{"id", Schema::string(), true},
                                    {"type", Schema::word({"message", "function_call", "reasoning"}), true},
                                    {"status", Schema::word({"completed", "incomplete"}), true}},
                                   Schema::Others::Allowed);
  const auto usage = Schema::object({{"input_tokens", Schema::integer(0), true},
                                     {"input_tokens_details", details("cached_tokens"), true},
                                     {"output_tokens", Schema::integer(0), true},
                                     {"output_tokens_details", details("reasoning_tokens"), true},
                                     {"total_tokens", Schema::integer(0), true}});
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
