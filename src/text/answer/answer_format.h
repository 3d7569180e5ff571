// The syntax of tool calls and reasoning in a model's answers, derived from its chat template.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

enum class ToolFormat : uint8_t {
  Hermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Qwen, Hermes, and models instructed by
            // instruct_about_tools()
  Llama3,   // {"name": ..., "parameters": {...}}, optionally behind <|python_tag|>
  Mistral,  // [TOOL_CALLS][{"name": ..., "arguments": {...}}], or the newer [TOOL_CALLS]name[ARGS]{...}
  Harmony,  // <|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>; gpt-oss
};

struct AnswerFormat {
  ToolFormat tools = ToolFormat::Hermes;
  bool template_has_tools = false;  // the template renders `tools`; else instruct_about_tools() describes them
  bool reasons = false;             // the template mentions <think> or channels: answers may begin with reasoning

  bool harmony() const { return tools == ToolFormat::Harmony; }
};

AnswerFormat answer_format(std::string_view template_source);

// True if a rendered prompt ends inside of <think>. The answer then begins with reasoning.
bool prompt_opens_reasoning(std::string_view prompt);

// The part of a harmony message that a rendered prompt has begun: the text behind its last "<|start|>assistant".
std::string_view harmony_opened(std::string_view prompt);

// The delimiters of calls. A list of calls is
//   marker  first  before NAME middle ARGUMENTS after  (between  before NAME middle ARGUMENTS after)*  end
// where `marker` is a special token of the vocabulary or empty.
struct ToolSyntax {
  std::string_view marker;  // token masks cannot force special tokens, so it is appended to the prompt
  std::string_view first, before, middle, after, between, end;
  bool parallel;  // allows several calls
  // The text that starts a list of calls in a free answer. If opens_at_start, it counts only at the beginning of the
  // answer and behind `restart`.
  std::string_view opening;
  bool opens_at_start = false;
  std::string_view restart = "";
};

const ToolSyntax& tool_syntax(ToolFormat format);  // Harmony has none: its headers contain special tokens

}  // namespace millrace
