// Parses one tool call, {"name": ..., "arguments": {...}}, byte by byte. "parameters" is a synonym of "arguments".
#pragma once

#include <string>

#include "text/answer/json_extent.h"

namespace millrace {

class CallObject {
 public:
  enum class Step : uint8_t {
    Inside,
    End,     // the byte closed a call with a name
    Broken,  // not a call
  };
  Step take(char byte);

  const std::string& name() const { return name_; }  // empty until known
  // Returns the arguments received since the last call of this function; empty until the name is known.
  std::string take_arguments();

 private:
  enum class State : uint8_t { Start, KeyOrEnd, Key, Colon, ValueStart, Value, CommaOrEnd };
  enum class Role : uint8_t { Name, Arguments, WrittenArguments, Other };

  Step take_key(char byte);
  Step begin_value(char byte);
  Step take_value(char byte);
  Step end_value();
  Step take_separator(char byte);

  State state_ = State::Start;
  Role role_ = Role::Other;
  JsonExtent extent_;
  bool escaped_ = false, has_arguments_ = false;
  std::string key_, value_, name_, arguments_;
};

}  // namespace millrace
