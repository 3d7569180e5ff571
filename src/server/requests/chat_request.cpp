#include "server/requests/chat_request.h"

#include "server/requests/api_error.h"
#include "server/requests/custom_tools.h"

namespace millrace {
namespace {

using Property = Schema::Property;

// Prefixes are always shared, so marks for a cache change nothing.
Schema content_schema(size_t least_parts = 1) {
  const auto text = Schema::object({{"type", Schema::word({"text"}), true},
                                    {"text", Schema::string(), true},
                                    {"cache_control", free_object().or_null()},
                                    {"prompt_cache_breakpoint", free_object().or_null()}});
  const auto refusal = Schema::object({{"type", Schema::word({"refusal"}), true}, {"refusal", Schema::string(), true}});
  return Schema::any_of({Schema::string(), Schema::array(Schema::any_of({text, refusal}), least_parts)});
}

Schema called_function() {
  return Schema::object({{"name", Schema::string(1), true}, {"arguments", Schema::string(), true}});
}

Schema tool_calls_schema() {
  const auto custom = Schema::object({{"name", Schema::string(1), true}, {"input", Schema::string(), true}});
  return Schema::array(Schema::any_of({Schema::object({{"id", Schema::string(), true},
                                                       {"type", Schema::word({"function"}), true},
                                                       {"function", called_function(), true},
                                                       {"index", Schema::integer(0).or_null()},
                                                       {"provider_specific_fields", free_object().or_null()}}),
                                       Schema::object({{"id", Schema::string(), true},
                                                       {"type", Schema::word({"custom"}), true},
                                                       {"custom", custom, true},
                                                       {"index", Schema::integer(0).or_null()}})}));
}

Schema message_schema(std::vector<std::string> roles, std::vector<Property> more) {
  std::vector<Property> properties{{"role", Schema::word(std::move(roles)), true},
                                   {"name", Schema::string().or_null()}};
  properties.insert(properties.end(), more.begin(), more.end());
  return Schema::object(std::move(properties));
}

// The fields that SDKs copy from an answer into the history; provider_specific_fields and thinking_blocks are LiteLLM's
// copies of other fields.
Schema assistant_schema() {
  return message_schema({"assistant"}, {{"content", content_schema(0).or_null()},
                                        {"tool_calls", tool_calls_schema().or_null()},
                                        {"reasoning_content", Schema::string().or_null()},
                                        {"reasoning", Schema::string().or_null()},
                                        {"provider_specific_fields", free_object().or_null()},
                                        {"thinking_blocks", Schema::array(Schema::any()).or_null()},
                                        {"refusal", Schema::string().or_null()},
                                        {"annotations", Schema::array(Schema::any(), 0, 0).or_null()},
                                        {"audio", Schema::null()},
                                        {"function_call", called_function().or_null()}});
}

// Templates expect an object; text that does not parse as one stays a string.
Json parsed_arguments(const Json& written) {
  try {
    Json parsed = parse_json(written.get_ref<const std::string&>());
    return parsed.is_object() ? parsed : written;
  } catch (const ApiError&) {
    return written;
  }
}

Schema tool_function() {
  return Schema::object({{"name", Schema::string(1, 64), true},
                         {"description", Schema::string().or_null()},
                         {"parameters", free_object().or_null()},
                         {"strict", Schema::boolean().or_null()}});
}

Schema function_tool() {
  return Schema::object({{"type", Schema::word({"function"}), true},
                         {"function", tool_function(), true},
                         {"cache_control", free_object().or_null()}});
}

Schema functions_and_custom_tools() {
  const auto custom = Schema::object({{"name", Schema::string(1, 64), true},
                                      {"description", Schema::string().or_null()},
                                      {"format", custom_format_schema(true).or_null()}});
  const auto custom_tool = Schema::object({{"type", Schema::word({"custom"}), true}, {"custom", custom, true}});
  return Schema::array(Schema::any_of({function_tool(), custom_tool}), 0, 128);
}

void read_tools(ChatRequest& r, const Json& tools) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const auto custom = tools[i].find("custom");
    if (custom == tools[i].end()) {
      r.tools.push_back(tools[i]);
      continue;
    }
    r.custom_tools.push_back((*custom)["name"]);
    r.tools.push_back(
        {{"type", "function"}, {"function", function_of_custom(*custom, fmt::format("tools[{}].custom", i))}});
  }
}

// A chosen custom tool is a function from here on.
Json as_function_choice(const Json& choice) {
  const auto custom = choice.find("custom");
  return custom == choice.end() ? choice : Json{{"type", "function"}, {"function", *custom}};
}

void read_tool_choice(ChatRequest& r, const Json& choice) {
  r.tool_choice = choice.is_object() ? as_function_choice(choice) : choice;
  if (!r.tool_choice.is_object() || r.tool_choice["type"] != "allowed_tools") return;
  for (Json& tool : r.tool_choice["allowed_tools"]["tools"]) tool = as_function_choice(tool);
}

// The older form of tools: at most one call in each answer.
void read_functions(ChatRequest& r, const Json& functions) {
  if (!r.tools.empty())
    fail_field("functions", "invalid_value", "'functions' is the older name of 'tools': give one of them");
  for (const Json& function : functions) r.tools.push_back({{"type", "function"}, {"function", function}});
  r.legacy_functions = true;
  r.parallel_tool_calls = false;
}

void read_function_call(ChatRequest& r, const Json& choice) {
  if (!r.tool_choice.is_null()) {
    fail_field("function_call", "invalid_value",
               "'function_call' is the older name of 'tool_choice': give one of them");
  }
  r.tool_choice = choice.is_object() ? Json{{"type", "function"}, {"function", choice}} : choice;
}

// A function message answers the call before it.
constexpr const char* kLegacyCall = "call_0";

Json legacy_call(const Json& function) {
  return Json::array({{{"id", kLegacyCall}, {"type", "function"}, {"function", function}}});
}

}  // namespace

Schema free_object() { return Schema::object({}, Schema::Others::Allowed); }

Schema response_format_schema() {
  const auto plain = [](const char* type) { return Schema::object({{"type", Schema::word({type}), true}}); };
  return Schema::any_of(
             {plain("text"),
              Schema::object({{"type", Schema::word({"json_object"}), true},
                              {"schema", free_object().or_null().about("a JSON Schema that the object follows")},
                              {"value", free_object().or_null().about("huggingface_hub's name of schema")}}),
              Schema::object(
                  {{"type", Schema::word({"json_schema"}), true}, {"json_schema", json_schema_format(), true}}),
              Schema::object({{"type", Schema::word({"regex"}), true}, {"regex", Schema::string(1), true}}),
              Schema::object({{"type", Schema::word({"grammar"}), true},
                              {"grammar", Schema::string(1).about("EBNF; the rule root is the answer"), true}})})
      .about("what the answer must look like; it always does");
}

Schema structured_outputs_schema() {
  return Schema::object({{"json", Schema::any_of({free_object(), Schema::string(1)}).or_null()},
                         {"regex", Schema::string(1).or_null()},
                         {"choice", Schema::array(Schema::string(1), 1, 256).or_null()},
                         {"grammar", Schema::string(1).or_null()},
                         {"json_object", Schema::boolean().or_null()}});
}

Schema json_schema_format() {
  return Schema::object({{"name", Schema::string(1, 64), true},
                         {"description", Schema::string().or_null()},
                         {"schema", free_object().about("a JSON Schema")},
                         {"strict", Schema::boolean().or_null()}});
}

Schema messages_schema() {
  const Schema content = content_schema();
  return Schema::array(Schema::any_of({message_schema({"system", "developer", "user"}, {{"content", content, true}}),
                                       assistant_schema(),
                                       message_schema({"tool"}, {{"content", content_schema(0), true},
                                                                 {"tool_call_id", Schema::string(), true}}),
                                       message_schema({"function"}, {{"content", content.or_null(), true}})}),
                       1)
      .example(Json::array({{{"role", "user"}, {"content", "Say hello."}}}));
}

Schema tools_schema() { return Schema::array(function_tool(), 0, 128); }

Schema tool_choice_schema() {
  const auto name = Schema::object({{"name", Schema::string(1), true}});
  const auto function = Schema::object({{"type", Schema::word({"function"}), true}, {"function", name, true}});
  const auto custom = Schema::object({{"type", Schema::word({"custom"}), true}, {"custom", name, true}});
  const auto allowed = Schema::object({{"mode", Schema::word({"auto", "required"}), true},
                                       {"tools", Schema::array(Schema::any_of({function, custom}), 1, 128), true}});
  return Schema::any_of(
      {Schema::word({"none", "auto", "required"}), function, custom,
       Schema::object({{"type", Schema::word({"allowed_tools"}), true}, {"allowed_tools", allowed, true}})});
}

const Fields<ChatRequest>& chat_fields() {
  using R = ChatRequest;
  static const Fields<R> fields{
      {required_field<R>("messages", messages_schema(), &R::messages)},
      sampling_fields<R>(),
      harmless_fields<R>(),
      {
          field<R>("structured_outputs", structured_outputs_schema(), &R::structured_outputs),
      },
      guided_fields<R>(),
      {
          field<R>("max_tokens", Schema::integer(1, kMostTokens).about("the older name of max_completion_tokens"),
                   &R::max_tokens),
          field<R>("max_completion_tokens", Schema::integer(1, kMostTokens), &R::max_completion_tokens),
          field<R>("logprobs", Schema::boolean(), &R::logprobs),
          field<R>("top_logprobs", Schema::integer(0, kMostLogprobs), &R::top_logprobs),
          {"tools", functions_and_custom_tools(), read_tools},
          {"tool_choice", tool_choice_schema(), read_tool_choice},
          field<R>("parallel_tool_calls", Schema::boolean().unless_given(true), &R::parallel_tool_calls),
          {"functions", Schema::array(tool_function(), 0, 128).about("the older name of tools"), read_functions},
          {"function_call",
           Schema::any_of({Schema::word({"none", "auto"}), Schema::object({{"name", Schema::string(1), true}})})
               .about("the older name of tool_choice"),
           read_function_call},
          field<R>("response_format", response_format_schema(), &R::response_format),
          field<R>("reasoning_effort",
                   Schema::word({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
                       .about("for models that reason: how long they may; refused for others"),
                   &R::reasoning_effort),
          field<R>("thinking_budget", Schema::integer(0, kMostTokens).about("tokens of reasoning, at most"),
                   &R::thinking_budget),
          field<R>("chat_template_kwargs", free_object().about("more variables for the chat template"),
                   &R::chat_template_kwargs),
          field<R>("verbosity", verbosity_schema(), &R::verbosity),
          field<R>(
              "continue_final_message",
              Schema::boolean().unless_given(false).about("the answer continues the last message, the assistant's"),
              &R::continue_final_message),
          field<R>("add_generation_prompt",
                   Schema::boolean().about("false only with continue_final_message, where it is the default"),
                   &R::add_generation_prompt),
          ignored_field<R>("modalities", Schema::array(Schema::word({"text"}))),
          ignored_field<R>("audio", Schema::null().about("not supported")),
          ignored_field<R>("web_search_options", Schema::null().about("not supported")),
          ignored_field<R>("moderation", Schema::null().about("not supported")),
      }};
  return fields;
}

Schema verbosity_schema() {
  return Schema::word({"low", "medium", "high"})
      .about("low and high add a sentence about length to the system message");
}

std::string content_text(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (content.is_array()) {
    for (const Json& part : content) text += part.value("text", part.value("refusal", ""));
  }
  return text;
}

Json template_messages(const Json& messages) {
  Json result = Json::array();
  for (const Json& message : messages) {
    Json made = Json::object();
    const std::string role = message["role"];
    made["role"] = role == "developer" ? "system" : role == "function" ? "tool" : role;
    if (role == "function") made["tool_call_id"] = kLegacyCall;
    const auto content = message.find("content");
    made["content"] = content == message.end() ? Json("") : Json(content_text(*content));
    for (const char* name : {"name", "tool_call_id", "reasoning_content"}) {
      const auto found = message.find(name);
      if (found != message.end() && found->is_string()) made[name] = *found;
    }
    const auto reasoning = message.find("reasoning");  // vLLM's and OpenRouter's name of reasoning_content
    if (!made.contains("reasoning_content") && reasoning != message.end() && reasoning->is_string())
      made["reasoning_content"] = *reasoning;
    const auto calls = message.find("tool_calls");
    const auto legacy = message.find("function_call");
    if (calls != message.end() && calls->is_array() && !calls->empty()) made["tool_calls"] = *calls;
    if (legacy != message.end() && legacy->is_object()) made["tool_calls"] = legacy_call(*legacy);
    if (made.contains("tool_calls")) {
      for (Json& call : made["tool_calls"]) {
        if (call["type"] == "custom") {
          const Json& custom = call["custom"];
          call = {{"id", call["id"]},
                  {"type", "function"},
                  {"function", {{"name", custom["name"]}, {"arguments", custom_arguments(custom["input"])}}}};
        }
        Json& arguments = call["function"]["arguments"];
        arguments = parsed_arguments(arguments);
      }
    }
    result.push_back(std::move(made));
  }
  return result;
}

}  // namespace millrace
