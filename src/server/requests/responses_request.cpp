#include "server/requests/responses_request.h"

#include <algorithm>

#include "server/base64.h"
#include "server/requests/custom_tools.h"

namespace millrace {
namespace {

// Parts of a message. Clients send our answers back as history, with all fields.
Schema parts_schema() {
  const auto in = Schema::object({{"type", Schema::word({"input_text", "text"}), true},
                                  {"text", Schema::string(), true},
                                  {"prompt_cache_breakpoint", maybe(free_object())}});
  const auto refusal = Schema::object({{"type", Schema::word({"refusal"}), true}, {"refusal", Schema::string(), true}});
  const auto out = Schema::object({{"type", Schema::word({"output_text"}), true},
                                   {"text", Schema::string(), true},
                                   {"annotations", maybe(Schema::array(Schema::any(), 0, 0))},
                                   {"logprobs", maybe(Schema::array(Schema::any()))}});
  return Schema::any_of({Schema::string(), Schema::array(Schema::any_of({in, out, refusal}))});
}

Schema item_schema() {
  const auto id = maybe(Schema::string());
  const auto status = maybe(Schema::word({"in_progress", "completed", "incomplete"}));
  const auto message = Schema::object({{"type", maybe(Schema::word({"message"}))},
                                       {"role", Schema::word({"system", "developer", "user", "assistant"}), true},
                                       {"content", parts_schema(), true},
                                       {"phase", maybe(Schema::string())},
                                       {"id", id},
                                       {"status", status}});
  const auto caller = maybe(Schema::object({{"type", Schema::word({"direct"}), true}}));
  const auto call = Schema::object({{"type", Schema::word({"function_call"}), true},
                                    {"call_id", Schema::string(1), true},
                                    {"name", Schema::string(1), true},
                                    {"arguments", Schema::string(), true},
                                    {"namespace", Schema::null()},
                                    {"caller", caller},
                                    {"id", id},
                                    {"status", status}});
  const auto output = Schema::object({{"type", Schema::word({"function_call_output"}), true},
                                      {"call_id", Schema::string(1), true},
                                      {"output", parts_schema(), true},
                                      {"name", maybe(Schema::string())},
                                      {"namespace", Schema::null()},
                                      {"caller", caller},
                                      {"id", id},
                                      {"status", status}});
  const auto thought = Schema::object({{"type", Schema::word({"reasoning"}), true},
                                       {"summary", maybe(Schema::array(Schema::any()))},
                                       {"content", maybe(Schema::array(Schema::any()))},
                                       {"encrypted_content", maybe(Schema::string())},
                                       {"id", id},
                                       {"status", status}});
  const auto custom_call = Schema::object({{"type", Schema::word({"custom_tool_call"}), true},
                                           {"call_id", Schema::string(1), true},
                                           {"name", Schema::string(1), true},
                                           {"input", Schema::string(), true},
                                           {"namespace", Schema::null()},
                                           {"caller", caller},
                                           {"id", id},
                                           {"status", status}});
  const auto custom_output = Schema::object({{"type", Schema::word({"custom_tool_call_output"}), true},
                                             {"call_id", Schema::string(1), true},
                                             {"output", parts_schema(), true},
                                             {"caller", caller},
                                             {"id", id},
                                             {"status", status}});
  return Schema::any_of({message, call, output, thought, custom_call, custom_output});
}

Schema function_schema() {
  return Schema::object({{"type", Schema::word({"function"}), true},
                         {"name", Schema::string(1, 64), true},
                         {"description", maybe(Schema::string())},
                         {"parameters", maybe(Schema::map(Schema::any()))},
                         {"strict", maybe(Schema::boolean())},
                         {"output_schema", maybe(free_object().about("for tools that call tools: not used"))},
                         {"allowed_callers", maybe(Schema::array(Schema::word({"direct"})))},
                         {"defer_loading", maybe(Schema::boolean().about("every tool is shown at once"))}});
}

Schema custom_schema() {
  return Schema::object({{"type", Schema::word({"custom"}), true},
                         {"name", Schema::string(1, 64), true},
                         {"description", maybe(Schema::string())},
                         {"format", maybe(custom_format_schema(false))},
                         {"allowed_callers", maybe(Schema::array(Schema::word({"direct"})))},
                         {"defer_loading", maybe(Schema::boolean())}});
}

Schema text_schema() {
  const auto plain = [](const char* type) { return Schema::object({{"type", Schema::word({type}), true}}); };
  const auto json_schema = Schema::object({{"type", Schema::word({"json_schema"}), true},
                                           {"name", Schema::string(1, 64), true},
                                           {"description", maybe(Schema::string())},
                                           {"schema", Schema::map(Schema::any()), true},
                                           {"strict", maybe(Schema::boolean())}});
  return Schema::object({{"format", maybe(Schema::any_of({plain("text"), plain("json_object"), json_schema}))},
                         {"verbosity", maybe(verbosity_schema())}});
}

// What OpenAI's tools and inputs would add never occurs here, so asking for it changes nothing.
Schema include_schema() {
  return Schema::array(
      Schema::word({kIncludeLogprobs, kIncludeReasoning, "file_search_call.results", "web_search_call.results",
                    "web_search_call.action.sources", "message.input_image.image_url",
                    "computer_call_output.output.image_url", "code_interpreter_call.outputs"}));
}

Schema reasoning_schema() {
  const auto summary = Schema::word({"auto", "concise", "detailed"});
  return Schema::object(
      {{"effort", maybe(Schema::word({"none", "minimal", "low", "medium", "high", "xhigh", "max"}))},
       {"context", maybe(Schema::word({"auto"}).about("which reasoning the model sees: its template decides"))},
       {"mode", maybe(Schema::word({"standard"}))},
       {"summary", maybe(summary.about("the reasoning itself, as the item's summary"))},
       {"generate_summary", maybe(summary.about("the older name of summary"))}});
}

Schema response_stream_options() {
  return Schema::object({{"include_obfuscation", maybe(Schema::boolean().about("pads the deltas of a stream"))},
                         {"include_usage", maybe(Schema::boolean().about("the last event always has usage"))}});
}

void read_stream_options_here(ResponsesRequest& r, const Json& json) {
  r.obfuscate = json.value("include_obfuscation", Json()) == true;
}

// The text of a reasoning item that comes back as history.
std::string reasoning_text(const Json& item) {
  for (const char* name : {"content", "summary"}) {
    const auto parts = item.find(name);
    if (parts == item.end() || !parts->is_array()) continue;
    std::string text;
    for (const Json& part : *parts) {
      if (part.is_object() && part.value("text", Json()).is_string()) text += part["text"].get<std::string>();
    }
    if (!text.empty()) return text;
  }
  const Json kept = item.value("encrypted_content", Json());
  return kept.is_string() ? from_base64(kept.get_ref<const std::string&>()) : "";
}

Schema choice_schema() {
  const auto function =
      Schema::object({{"type", Schema::word({"function", "custom"}), true}, {"name", Schema::string(1), true}});
  return Schema::any_of({Schema::word({"none", "auto", "required"}), function,
                         Schema::object({{"type", Schema::word({"allowed_tools"}), true},
                                         {"mode", Schema::word({"auto", "required"}), true},
                                         {"tools", Schema::array(function, 1, 128), true}})});
}

Json chat_tool(const Json& tool) {
  Json function = tool;
  for (const char* name : {"type", "output_schema", "allowed_callers", "defer_loading"}) function.erase(name);
  return {{"type", "function"}, {"function", std::move(function)}};
}

Json chat_tool_choice(const Json& choice) {
  if (!choice.is_object()) return choice;
  if (choice["type"] != "allowed_tools") return chat_tool(choice);
  Json tools = Json::array();
  for (const Json& tool : choice["tools"]) tools.push_back(chat_tool(tool));
  return {{"type", "allowed_tools"}, {"allowed_tools", {{"mode", choice["mode"]}, {"tools", std::move(tools)}}}};
}

std::string call_arguments(const Json& item) {
  return item["type"] == "custom_tool_call" ? custom_arguments(item["input"]) : item["arguments"].get<std::string>();
}

// Items in order. Adjacent assistant calls form one message, as chat templates expect.
Json chat_messages(const ResponsesRequest& r) {
  Json messages = Json::array();
  if (!r.instructions.empty()) messages.push_back({{"role", "system"}, {"content", r.instructions}});
  if (r.input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", r.input}});
    return messages;
  }
  std::string thought;  // of the assistant's message that follows
  const auto as_assistant = [&](Json message) {
    if (!thought.empty()) message["reasoning_content"] = std::exchange(thought, {});
    messages.push_back(std::move(message));
  };
  for (const Json& item : r.input) {
    const auto named = item.find("type");
    const std::string type = named != item.end() && named->is_string() ? named->get<std::string>() : "message";
    if (type == "message") {
      Json message{{"role", item["role"]}, {"content", content_text(item["content"])}};
      if (item["role"] == "assistant") {
        as_assistant(std::move(message));
      } else {
        messages.push_back(std::move(message));
      }
    } else if (type == "reasoning") {
      thought += reasoning_text(item);
    } else if (type == "function_call" || type == "custom_tool_call") {
      if (messages.empty() || messages.back()["role"] != "assistant") {
        as_assistant({{"role", "assistant"}, {"content", ""}});
      }
      Json& calls = messages.back()["tool_calls"];
      calls.push_back({{"id", item["call_id"]},
                       {"type", "function"},
                       {"function", {{"name", item["name"]}, {"arguments", call_arguments(item)}}}});
    } else if (type == "function_call_output" || type == "custom_tool_call_output") {
      messages.push_back(
          {{"role", "tool"}, {"tool_call_id", item["call_id"]}, {"content", content_text(item["output"])}});
    }
  }
  if (messages.empty()) fail_field("input", "invalid_value", "'input' has no message");
  return messages;
}

}  // namespace

const Fields<ResponsesRequest>& responses_fields() {
  using R = ResponsesRequest;
  static const Fields<R> fields{{
      required_field<R>("input", Schema::any_of({Schema::string(), Schema::array(item_schema(), 1)}).example("Hello"),
                        &R::input),
      field<R>("model", Schema::string(), &R::model),
      field<R>("instructions", Schema::string().about("the system message"), &R::instructions),
      field<R>("max_output_tokens", Schema::integer(1, kMostTokens), &R::max_output_tokens),
      field<R>("temperature", Schema::number(0, 2), &R::temperature),
      field<R>("top_p", Schema::number(0, 1), &R::top_p),
      field<R>("top_k", Schema::integer(-1, kMostTokens).about("among the k likeliest; 0 or -1: all"), &R::top_k),
      field<R>("min_p", Schema::number(0, 1).about("none less likely than this share of the likeliest"), &R::min_p),
      field<R>("seed", Schema::integer().about("the same seed gives the same text"), &R::seed),
      field<R>("top_logprobs", Schema::integer(0, kMostLogprobs), &R::top_logprobs),
      field<R>("stream", Schema::boolean().unless_given(false), &R::stream),
      field<R>("tools", Schema::array(Schema::any_of({function_schema(), custom_schema()}), 0, 128), &R::tools),
      field<R>("tool_choice", choice_schema(), &R::tool_choice),
      field<R>("parallel_tool_calls", Schema::boolean().unless_given(true), &R::parallel_tool_calls),
      field<R>("text", text_schema(), &R::text),
      field<R>("reasoning", reasoning_schema(), &R::reasoning),
      {"stream_options", response_stream_options(), read_stream_options_here},
      field<R>("truncation",
               Schema::word({"disabled", "auto"}).about("auto: a prompt that is too long loses its oldest messages"),
               &R::truncation),
      field<R>("include", include_schema(), &R::include),
      field<R>("metadata", Schema::map(Schema::string()), &R::metadata),
      field<R>("user", Schema::string(), &R::user),
      field<R>("store", Schema::boolean().unless_given(true).about("keeps the response for previous_response_id"),
               &R::store),
      field<R>("previous_response_id",
               Schema::string(1).about("the conversation goes on behind this stored response; instructions do not"),
               &R::previous_response_id),
      field<R>("background",
               Schema::boolean().unless_given(false).about("goes on without a client; GET /v1/responses/{id} reads it"),
               &R::background),
      ignored_field<R>("service_tier", Schema::string()),
      ignored_field<R>("safety_identifier", Schema::string()),
      ignored_field<R>("prompt_cache_key", Schema::string()),
      ignored_field<R>("prompt_cache_retention", Schema::string()),
      ignored_field<R>("prompt_cache_options", free_object()),
      ignored_field<R>("max_tool_calls", Schema::integer(1).about("counts calls of built-in tools, which are refused")),
      ignored_field<R>("conversation", Schema::null().about("not supported: send the whole conversation")),
      ignored_field<R>("prompt", Schema::null().about("not supported: send the text")),
      ignored_field<R>("context_management", Schema::null().about("not supported")),
      ignored_field<R>("moderation", Schema::null().about("not supported")),
  }};
  return fields;
}

ApiProblem in_responses_names(ApiProblem problem) {
  static const std::pair<std::string_view, std::string_view> kNames[] = {{"messages", "input"},
                                                                         {"reasoning_effort", "reasoning.effort"},
                                                                         {"response_format", "text.format"},
                                                                         {".function.name", ".name"}};
  for (const auto& [chat, here] : kNames) {
    const size_t at = problem.param.find(chat);
    if (at != std::string::npos) problem.param.replace(at, chat.size(), here);
  }
  return problem;
}

bool ResponsesRequest::includes(const char* what) const {
  return std::find(include.begin(), include.end(), what) != include.end();
}

bool ResponsesRequest::summarises() const {
  return reasoning.is_object() &&
         (reasoning.value("summary", Json()).is_string() || reasoning.value("generate_summary", Json()).is_string());
}

ChatRequest to_chat_request(const ResponsesRequest& r) {
  ChatRequest chat;
  chat.model = r.model;
  chat.user = r.user;
  chat.messages = chat_messages(r);
  chat.max_completion_tokens = r.max_output_tokens;
  chat.temperature = r.temperature;
  chat.top_p = r.top_p;
  chat.top_k = r.top_k;
  chat.min_p = r.min_p;
  chat.seed = r.seed;
  chat.stream = r.stream;
  chat.top_logprobs = r.top_logprobs;
  chat.logprobs = r.top_logprobs > 0 || r.includes(kIncludeLogprobs);
  for (size_t i = 0; i < r.tools.size(); ++i) {
    const Json& tool = r.tools[i];
    if (tool["type"] == "function") {
      chat.tools.push_back(chat_tool(tool));
      continue;
    }
    chat.custom_tools.push_back(tool["name"]);
    chat.tools.push_back({{"type", "function"}, {"function", function_of_custom(tool, fmt::format("tools[{}]", i))}});
  }
  chat.tool_choice = chat_tool_choice(r.tool_choice);
  chat.parallel_tool_calls = r.parallel_tool_calls;
  if (r.text.is_object() && r.text.contains("format") && r.text["format"].is_object()) {
    const Json& format = r.text["format"];
    chat.response_format = format;
    if (format["type"] == "json_schema") {
      chat.response_format = {{"type", "json_schema"},
                              {"json_schema", {{"name", format["name"]}, {"schema", format["schema"]}}}};
    }
  }
  if (r.text.is_object() && r.text.value("verbosity", Json()).is_string()) chat.verbosity = r.text["verbosity"];
  if (r.reasoning.is_object() && r.reasoning.contains("effort") && r.reasoning["effort"].is_string()) {
    chat.reasoning_effort = r.reasoning["effort"];
  }
  return chat;
}

}  // namespace millrace
