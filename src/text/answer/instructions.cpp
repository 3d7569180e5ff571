#include "text/answer/instructions.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/json_text.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return "";
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  for (const Json& part : *content) {
    if (part.is_object() && part.contains("text") && part["text"].is_string()) text += part["text"].get<std::string>();
  }
  return text;
}

std::string describe(const Json& tools) {
  std::string text = "You can call functions. These are the functions, one in each line:\n";
  for (const Json& tool : tools) text += json_text(tool.contains("function") ? tool["function"] : tool) + "\n";
  text +=
      "To call one, answer with its name and arguments in this form, once for each call:\n"
      "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"ARGUMENT\": VALUE}}\n</tool_call>";
  return text;
}

std::string write_call(const Json& call) {
  const Json function = call.value("function", Json::object());
  const std::string name = function.value("name", Json("")).is_string() ? function.value("name", "") : "";
  const Json arguments = function.value("arguments", Json("{}"));
  return "<tool_call>\n{\"name\": " + json_text(Json(name)) +
         ", \"arguments\": " + (arguments.is_string() ? arguments.get<std::string>() : json_text(arguments)) +
         "}\n</tool_call>";
}

Json plain_message(const Json& message) {
  const std::string role = message.value("role", "");
  std::string text = text_of(message);
  if (role == "tool") return {{"role", "user"}, {"content", "<tool_response>\n" + text + "\n</tool_response>"}};
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array() || calls->empty()) return message;
  for (const Json& call : *calls) {
    if (!text.empty()) text += "\n";
    text += write_call(call);
  }
  return {{"role", role}, {"content", text}};
}

}  // namespace

Json instruct_about_tools(Json messages, const Json& tools) {
  Json result = Json::array();
  for (const Json& message : messages) result.push_back(plain_message(message));
  return tools.empty() ? result : add_to_system(std::move(result), describe(tools));
}

Json add_to_system(Json messages, const std::string& text) {
  const bool has_system = !messages.empty() && messages[0].value("role", "") == "system";
  if (has_system) {
    messages[0]["content"] = text_of(messages[0]) + "\n\n" + text;
  } else {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
  }
  return messages;
}

}  // namespace millrace
