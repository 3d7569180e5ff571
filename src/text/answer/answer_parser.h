// Splits a streamed answer into reasoning, content and tool calls. The joined result does not depend on how the stream
// is cut into pieces.
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
    Call,       // a tool call begins; text is the name of the function
    Arguments,  // the next part of the call's arguments, the model's unmodified JSON
  };
  Kind kind = Kind::Content;
  int call = -1;  // for Call and Arguments: index of the call, from 0
  std::string text;
};

struct AnswerParserOptions {
  AnswerFormat format;
  bool tools = false;              // the request has tools: detect calls
  bool in_reasoning = false;       // the prompt ends inside of <think>
  bool after_marker = false;       // the prompt ends with ToolSyntax::marker: the answer begins with calls
  std::string opened;              // harmony: the part of the first message that the prompt contains
  std::vector<std::string> names;  // names of the tools; formats without tags need them to tell calls from other JSON
};

class AnswerParser {
 public:
  explicit AnswerParser(AnswerParserOptions options);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  // Takes the next text and returns the pieces that later text cannot change; may be empty.
  std::vector<AnswerPiece> push(std::string_view piece);
  // Ends the answer and returns the held-back pieces. An incomplete call becomes content.
  std::vector<AnswerPiece> finish();

  bool in_reasoning() const;  // true until the first byte behind the reasoning
  int calls() const;          // calls begun so far; more than 0 means finish_reason "tool_calls"

 private:
  struct Stages;
  std::unique_ptr<Stages> stages_;
};

// Special tokens whose text the detokenizer must pass to the parser. Empty for formats without such tokens.
std::vector<std::string> answer_markers(const AnswerFormat& format, bool tools);

}  // namespace millrace
