#include "text/answer/answer_format.h"

#include "base/ascii.h"

namespace millrace {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

ToolFormat tool_format(std::string_view source) {
  if (has(source, "<|channel|>") && has(source, "<|message|>")) return ToolFormat::Harmony;
  if (has(source, "[TOOL_CALLS]")) return ToolFormat::Mistral;
  if (has(source, "<tool_call>")) return ToolFormat::Hermes;
  // Templates of Llama 3.1 and later contain the tag of built-in tools or describe the format.
  if (has(source, "<|python_tag|>") || has(source, "\"parameters\": dictionary of argument name")) {
    return ToolFormat::Llama3;
  }
  return ToolFormat::Hermes;
}

}  // namespace

AnswerFormat answer_format(std::string_view source) {
  AnswerFormat format;
  format.tools = tool_format(source);
  format.template_has_tools = has(source, "tools");
  format.reasons = has(source, "<think>") || has(source, "</think>") || format.harmony();
  return format;
}

bool prompt_opens_reasoning(std::string_view prompt) {
  while (!prompt.empty() && is_ascii_space(prompt.back())) prompt.remove_suffix(1);
  return prompt.ends_with("<think>");
}

std::string_view harmony_opened(std::string_view prompt) {
  constexpr std::string_view kAnswer = "<|start|>assistant";
  const size_t at = prompt.rfind(kAnswer);
  return at == std::string_view::npos ? "" : prompt.substr(at + kAnswer.size());
}

const ToolSyntax& tool_syntax(ToolFormat format) {
  static constexpr ToolSyntax kHermes{.marker = "",
                                      .first = "",
                                      .before = "<tool_call>\n{\"name\": \"",
                                      .middle = "\", \"arguments\": ",
                                      .after = "}\n</tool_call>",
                                      .between = "\n",
                                      .end = "",
                                      .parallel = true,
                                      .opening = "<tool_call>"};
  static constexpr ToolSyntax kLlama3{.marker = "",
                                      .first = "",
                                      .before = "{\"name\": \"",
                                      .middle = "\", \"parameters\": ",
                                      .after = "}",
                                      .between = "",
                                      .end = "",
                                      .parallel = false,
                                      .opening = "{",
                                      .opens_at_start = true,
                                      .restart = "<|python_tag|>"};
  static constexpr ToolSyntax kMistral{.marker = "[TOOL_CALLS]",
                                       .first = "[",
                                       .before = "{\"name\": \"",
                                       .middle = "\", \"arguments\": ",
                                       .after = "}",
                                       .between = ", ",
                                       .end = "]",
                                       .parallel = true,
                                       .opening = "[TOOL_CALLS]"};
  switch (format) {
    case ToolFormat::Llama3:
      return kLlama3;
    case ToolFormat::Mistral:
      return kMistral;
    case ToolFormat::Harmony:
    case ToolFormat::Hermes:
      break;
  }
  return kHermes;
}

}  // namespace millrace
