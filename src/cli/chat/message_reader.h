// Joins the lines of a block between """ into one message.
#pragma once

#include <optional>
#include <string>

#include "base/function_ref.h"

namespace millrace {

struct TypedMessage {
  std::string text;
  bool block = false;  // it stood between """ and is no command
};

// `read_line` is called with true for lines inside of a block. Nullopt: the input ended.
std::optional<TypedMessage> read_message(FunctionRef<std::optional<std::string>(bool in_block)> read_line);

}  // namespace millrace
