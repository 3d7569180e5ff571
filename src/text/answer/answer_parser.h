// Takes a model's answer apart while it streams: reasoning, content and tool calls. However the text is cut into
// pieces, the joined result is the same.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer_format.h"

namespace millrace {

struct AnswerPiece {
  enum class Kind : uint8_t {
    Content,
    Reasoning,
    Call,       // a tool call begins: text is the function's name
    Arguments,  // the next part of that call's arguments, JSON as the model wrote it
  };
  Kind kind = Kind::Content;
  int call = -1;  // of Call and Arguments: which one, counted from 0
  std::string text;
};

struct AnswerParserOptions {
  AnswerFormat format;
  bool tools = false;              // the request has tools: look for calls
  bool in_reasoning = false;       // the prompt ended inside of <think>
  bool after_marker = false;       // the prompt ended with ToolSyntax::marker: calls begin at once
  std::vector<std::string> names;  // of the tools: a format without tags tells a call from other JSON by them
};

class AnswerParser {
 public:
  explicit AnswerParser(AnswerParserOptions options);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  // What is certain after the next piece of text; may be empty.
  std::vector<AnswerPiece> push(std::string_view piece);
  // The answer has ended: what was held back. What looked like a call and is none comes as content.
  std::vector<AnswerPiece> finish();

  bool in_reasoning() const;  // up to the first byte of what follows it
  int calls() const;          // that have begun so far; more than 0 means finish_reason "tool_calls"

 private:
  struct Stages;
  std::unique_ptr<Stages> stages_;
};

// Special tokens of the vocabulary that the parser must see although a detokenizer leaves special tokens out: their
// text takes part as it is. Empty where the format has none.
std::vector<std::string> answer_markers(const AnswerFormat& format, bool tools);

}  // namespace millrace
