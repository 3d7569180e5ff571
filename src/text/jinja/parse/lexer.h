// Splits template source into tokens. Trims white space with Hugging Face's settings of Jinja: drops the newline behind
// a block tag, the indentation in front of it (trim_blocks, lstrip_blocks), and one newline at the end of the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value/value.h"

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
  std::string text;  // for data, names, strings (unescaped) and operators
  Value value;       // for numbers

  bool is(Type wanted) const { return type == wanted; }
  bool is_name(std::string_view name) const { return type == Type::Name && text == name; }
  bool is_operator(std::string_view symbol) const { return type == Type::Operator && text == symbol; }
  std::string describe() const;
};

// The last token is End.
std::vector<Token> tokenize(std::string_view source);

}  // namespace millrace::jinja
