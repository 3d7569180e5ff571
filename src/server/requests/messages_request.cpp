#include "server/requests/messages_request.h"

namespace millrace {
namespace {

using Property = Schema::Property;

// Prefixes are always shared, so marks for a cache change nothing.
Schema block(const char* type, std::vector<Property> more) {
  std::vector<Property> all{{"type", Schema::word({type}), true}, {"cache_control", maybe(free_object())}};
  all.insert(all.end(), more.begin(), more.end());
  return Schema::object(std::move(all));
}

Schema text_block() {
  return block("text", {{"text", Schema::string(), true}, {"citations", maybe(Schema::array(Schema::any(), 0, 0))}});
}

Schema text_or_blocks(const std::vector<Schema>& blocks) {
  return Schema::any_of({Schema::string(), Schema::array(Schema::any_of(blocks))});
}

Schema document_block() {
  const auto source = Schema::object({{"type", Schema::word({"text"}), true},
                                      {"media_type", Schema::word({"text/plain"}), true},
                                      {"data", Schema::string(), true}});
  return block("document", {{"source", source, true},
                            {"title", maybe(Schema::string())},
                            {"context", maybe(Schema::string())},
                            {"citations", maybe(Schema::object({{"enabled", Schema::boolean()}}))}});
}

Schema anthropic_messages() {
  const Schema result = block("tool_result", {{"tool_use_id", Schema::string(1), true},
                                              {"content", maybe(text_or_blocks({text_block(), document_block()}))},
                                              {"is_error", maybe(Schema::boolean())},
                                              {"toolset_name", maybe(Schema::string())}});
  const Schema use = block("tool_use", {{"id", Schema::string(1), true},
                                        {"name", Schema::string(1), true},
                                        {"input", free_object(), true},
                                        {"caller", maybe(free_object())},
                                        {"toolset_name", maybe(Schema::string())}});
  const Schema thinking =
      block("thinking", {{"thinking", Schema::string(), true}, {"signature", maybe(Schema::string())}});
  const Schema redacted = block("redacted_thinking", {{"data", Schema::string(), true}});
  const auto message = [](const char* role, const Schema& content) {
    return Schema::object({{"role", Schema::word({role}), true}, {"content", content, true}});
  };
  return Schema::array(Schema::any_of({message("user", text_or_blocks({text_block(), result, document_block()})),
                                       message("assistant", text_or_blocks({text_block(), use, thinking, redacted})),
                                       message("system", text_or_blocks({text_block()}))}),
                       1)
      .example(Json::array({{{"role", "user"}, {"content", "Say hello."}}}));
}

Schema anthropic_tools() {
  return Schema::array(
      Schema::object({{"name", Schema::string(1, 128), true},
                      {"type", maybe(Schema::word({"custom"}))},
                      {"description", maybe(Schema::string())},
                      {"input_schema", free_object(), true},
                      {"strict", maybe(Schema::boolean())},
                      {"cache_control", maybe(free_object())},
                      {"eager_input_streaming", maybe(Schema::boolean())},
                      {"input_examples", maybe(Schema::array(Schema::any()))},
                      {"allowed_callers", maybe(Schema::array(Schema::word({"direct"})))},
                      {"defer_loading", maybe(Schema::boolean().about("every tool is shown at once"))}}),
      0, 128);
}

Schema anthropic_choice() {
  return Schema::object({{"type", Schema::word({"auto", "any", "tool", "none"}), true},
                         {"name", Schema::string(1)},
                         {"disable_parallel_tool_use", maybe(Schema::boolean())}});
}

Schema thinking_schema() {
  return Schema::object({{"type", Schema::word({"enabled", "disabled", "adaptive"}), true},
                         {"budget_tokens", maybe(Schema::integer(0, kMostTokens))},
                         {"display", maybe(Schema::word({"summarized", "omitted"}))}})
      .about("without it the model does not reason; adaptive: as the model does by itself");
}

Schema output_config_schema() {
  const auto format = Schema::object({{"type", Schema::word({"json_schema"}), true}, {"schema", free_object(), true}});
  return Schema::object(
      {{"effort", maybe(Schema::word({"low", "medium", "high", "xhigh", "max"}))}, {"format", maybe(format)}});
}

// Claude Code sends this edit with every request. Chat templates decide which earlier reasoning the model sees.
Schema context_management_schema() {
  const auto thinking =
      Schema::object({{"type", Schema::word({"clear_thinking_20251015"}), true}, {"keep", Schema::any()}});
  return Schema::object({{"edits", maybe(Schema::array(thinking))}}).about("only edits of earlier reasoning");
}

// Tool runners of the SDK ask for a conversation that the server keeps, and send it whole after this error.
void refuse_thread(MessagesRequest&, const Json&) {
  throw ApiError({400, "'thread' is not supported: send the whole conversation", "thread", "unsupported_value",
                  "thread_unsupported_request"});
}

std::vector<Field<MessagesRequest>> conversation_fields() {
  using R = MessagesRequest;
  return {required_field<R>("messages", anthropic_messages(), &R::messages),
          field<R>("model", Schema::string(), &R::model),
          field<R>("system", text_or_blocks({text_block()}), &R::system),
          field<R>("tools", anthropic_tools(), &R::tools),
          field<R>("tool_choice", anthropic_choice(), &R::tool_choice),
          field<R>("thinking", thinking_schema(), &R::thinking),
          field<R>("output_config", output_config_schema(), &R::output_config),
          {"thread", free_object().about("refused"), refuse_thread},
          ignored_field<R>("context_management", context_management_schema()),
          ignored_field<R>("mcp_servers", Schema::array(Schema::any(), 0, 0)),
          ignored_field<R>("speed", Schema::word({"standard"})),
          ignored_field<R>("user_profile_id", Schema::string()),
          ignored_field<R>("workspace_id", Schema::string()),
          ignored_field<R>("cache_control", free_object().about("prefixes are shared without it"))};
}

std::string block_text(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) return text;
  for (const Json& one : content) {
    if (one["type"] == "text") text += one["text"].get<std::string>();
    if (one["type"] == "document") text += one["source"]["data"].get<std::string>() + "\n\n";
  }
  return text;
}

// Results of tools become messages of their own, in front of the user's text.
void add_user(const Json& content, Json& messages) {
  bool answers = false;
  if (content.is_array()) {
    for (const Json& one : content) {
      if (one["type"] != "tool_result") continue;
      answers = true;
      const std::string said = one.contains("content") ? block_text(one["content"]) : "";
      messages.push_back({{"role", "tool"}, {"tool_call_id", one["tool_use_id"]}, {"content", said}});
    }
  }
  const std::string text = block_text(content);
  if (text.empty() && answers) return;
  if (!answers && !messages.empty() && messages.back()["role"] == "user") {  // turns of one role are one turn
    messages.back()["content"].get_ref<std::string&>() += "\n\n" + text;
  } else {
    messages.push_back({{"role", "user"}, {"content", text}});
  }
}

void add_assistant(const Json& content, Json& messages) {
  Json message{{"role", "assistant"}, {"content", block_text(content)}};
  std::string thinking;
  if (content.is_array()) {
    for (const Json& one : content) {
      if (one["type"] == "thinking") thinking += one["thinking"].get<std::string>();
      if (one["type"] != "tool_use") continue;
      message["tool_calls"].push_back({{"id", one["id"]},
                                       {"type", "function"},
                                       {"function", {{"name", one["name"]}, {"arguments", to_text(one["input"])}}}});
    }
  }
  if (!thinking.empty()) message["reasoning_content"] = thinking;
  messages.push_back(std::move(message));
}

Json chat_messages_of(const MessagesRequest& r) {
  Json messages = Json::array();
  const std::string system = block_text(r.system);
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  for (const Json& message : r.messages) {
    if (message["role"] == "user") {
      add_user(message["content"], messages);
    } else if (message["role"] == "assistant") {
      add_assistant(message["content"], messages);
    } else {
      messages.push_back({{"role", "system"}, {"content", block_text(message["content"])}});
    }
  }
  return messages;
}

void choose_tools(const MessagesRequest& r, ChatRequest& chat) {
  for (const Json& tool : r.tools) {
    Json function{{"name", tool["name"]}, {"parameters", tool["input_schema"]}};
    if (tool.contains("description") && tool["description"].is_string()) function["description"] = tool["description"];
    if (tool.value("strict", Json()) == true) function["strict"] = true;
    chat.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  if (!r.tool_choice.is_object()) return;
  const std::string type = r.tool_choice["type"];
  chat.parallel_tool_calls = r.tool_choice.value("disable_parallel_tool_use", Json()) != true;
  if (type != "tool") {
    chat.tool_choice = type == "any" ? "required" : type;
  } else if (!r.tool_choice.contains("name")) {
    fail_field("tool_choice.name", "missing_required_parameter", "'tool_choice.name' is required for type tool");
  } else {
    chat.tool_choice = {{"type", "function"}, {"function", {{"name", r.tool_choice["name"]}}}};
  }
}

void choose_thinking(const MessagesRequest& r, ChatRequest& chat) {
  const std::string type = r.thinking.is_object() ? r.thinking["type"].get<std::string>() : "disabled";
  if (type == "disabled") {
    chat.reasoning_effort = "none";
    return;
  }
  if (type == "enabled") {
    const Json budget = r.thinking.value("budget_tokens", Json());
    if (!budget.is_number()) {
      fail_field("thinking.budget_tokens", "missing_required_parameter", "'thinking.budget_tokens' is required");
    }
    chat.thinking_budget = budget.get<int>();
  }
  const Json effort = r.output_config.is_object() ? r.output_config.value("effort", Json()) : Json();
  if (effort.is_string()) chat.reasoning_effort = effort;
  chat.reasoning_optional = type == "adaptive";
}

}  // namespace

namespace {

Field<MessagesRequest> not_supported(const char* name) {
  return ignored_field<MessagesRequest>(name, Schema::null().about("not supported"));
}

}  // namespace

const Fields<MessagesRequest>& messages_fields() {
  using R = MessagesRequest;
  static const Fields<R> fields{
      conversation_fields(),
      {required_field<R>("max_tokens", Schema::integer(1, kMostTokens).example(64), &R::max_tokens),
       field<R>("stream", Schema::boolean().unless_given(false), &R::stream),
       field<R>("temperature", Schema::number(0, 2), &R::temperature),
       field<R>("top_p", Schema::number(0, 1), &R::top_p),
       field<R>("top_k", Schema::integer(0, kMostTokens), &R::top_k),
       field<R>("stop_sequences", Schema::array(Schema::string(1), 0, 16), &R::stop_sequences),
       {"metadata", Schema::object({{"user_id", maybe(Schema::string())}}),
        [](R& r, const Json& json) {
          if (json.value("user_id", Json()).is_string()) r.user = json["user_id"];
        }},
       ignored_field<R>("service_tier", Schema::string()),
       ignored_field<R>("inference_geo", Schema::string()),
       not_supported("billing_policy"),
       not_supported("compaction"),
       not_supported("container"),
       not_supported("diagnostics"),
       not_supported("fallback_credit_token"),
       not_supported("fallbacks")}};
  return fields;
}

const Fields<MessagesRequest>& count_tokens_fields() {
  static const Fields<MessagesRequest> fields{conversation_fields()};
  return fields;
}

ChatRequest to_chat_request(const MessagesRequest& r) {
  ChatRequest chat;
  chat.model = r.model;
  chat.user = r.user;
  chat.messages = chat_messages_of(r);
  chat.temperature = r.temperature;
  chat.top_p = r.top_p;
  chat.top_k = r.top_k;
  chat.stream = r.stream;
  chat.stop = r.stop_sequences;
  choose_tools(r, chat);
  choose_thinking(r, chat);
  if (r.output_config.is_object() && r.output_config.value("format", Json()).is_object()) {
    chat.response_format = {{"type", "json_schema"},
                            {"json_schema", {{"name", "answer"}, {"schema", r.output_config["format"]["schema"]}}}};
  }
  // An assistant's message at the end is the beginning of the answer.
  const Json& last = chat.messages.back();
  chat.continue_final_message =
      last["role"] == "assistant" && !last.contains("tool_calls") && !content_text(last["content"]).empty();
  return chat;
}

}  // namespace millrace
