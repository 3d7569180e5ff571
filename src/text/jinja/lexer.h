// From template source to tokens. White space is trimmed here, as Hugging Face sets Jinja up: the newline after a block
// tag and the indentation before one are dropped (trim_blocks, lstrip_blocks), and so is one newline at the end of the
// file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace millrace::jinja {

struct Token {
  enum class Type {
    Data,
    BlockBegin,
    BlockEnd,
    VariableBegin,
    VariableEnd,
    Name,
    String,
    Integer,
    Float,
    Operator,
    End
  };
  Type type;
  int line;
  std::string text;  // of data, a name, a string (unescaped) or an operator
  Value value;       // of a number

  bool is(Type wanted) const { return type == wanted; }
  bool is_name(std::string_view name) const { return type == Type::Name && text == name; }
  bool is_operator(std::string_view symbol) const { return type == Type::Operator && text == symbol; }
  std::string describe() const;
};

// Ends with an End token.
std::vector<Token> tokenize(std::string_view source);

}  // namespace millrace::jinja
