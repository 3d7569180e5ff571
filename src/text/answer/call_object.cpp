#include "text/answer/call_object.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"

namespace millrace {
namespace {

// Decodes a JSON string; empty for other JSON.
std::string decode_string(const std::string& json) {
  const auto value = read_json(json);
  return value.is_string() ? value.get<std::string>() : "";
}

}  // namespace

CallObject::Step CallObject::take(char byte) {
  const bool space = is_ascii_space(byte);
  switch (state_) {
    case State::Start:
      if (byte == '{') state_ = State::KeyOrEnd;
      return byte == '{' || space ? Step::Inside : Step::Broken;
    case State::KeyOrEnd:
      if (byte == '"') {
        key_.clear();
        state_ = State::Key;
        return Step::Inside;
      }
      return space ? Step::Inside : take_separator(byte);
    case State::Key:
      return take_key(byte);
    case State::Colon:
      if (byte == ':') state_ = State::ValueStart;
      return byte == ':' || space ? Step::Inside : Step::Broken;
    case State::ValueStart:
      return space ? Step::Inside : begin_value(byte);
    case State::Value:
      return take_value(byte);
    case State::CommaOrEnd:
      return space ? Step::Inside : take_separator(byte);
  }
  return Step::Broken;
}

CallObject::Step CallObject::take_key(char byte) {
  if (byte == '"' && !escaped_) {
    state_ = State::Colon;
    return Step::Inside;
  }
  escaped_ = byte == '\\' && !escaped_;
  key_ += byte;
  return Step::Inside;
}

CallObject::Step CallObject::begin_value(char byte) {
  if (byte == ',' || byte == '}' || byte == ']') return Step::Broken;
  role_ = Role::Other;
  if (key_ == "name" && name_.empty()) role_ = Role::Name;
  if ((key_ == "arguments" || key_ == "parameters") && !has_arguments_) {
    // Some models write the arguments as a string that holds JSON.
    role_ = byte == '"' ? Role::WrittenArguments : Role::Arguments;
    has_arguments_ = true;
  }
  extent_ = {};
  value_.clear();
  state_ = State::Value;
  return take_value(byte);
}

CallObject::Step CallObject::take_value(char byte) {
  const JsonExtent::Step step = extent_.take(byte);
  if (step == JsonExtent::Step::EndsBefore) {
    const Step ended = end_value();
    return ended == Step::Broken ? ended : take(byte);
  }
  if (role_ == Role::Arguments) {
    arguments_ += byte;
  } else if (role_ != Role::Other) {
    value_ += byte;
  }
  return step == JsonExtent::Step::End ? end_value() : Step::Inside;
}

CallObject::Step CallObject::end_value() {
  state_ = State::CommaOrEnd;
  if (role_ == Role::Name) {
    name_ = decode_string(value_);
    return name_.empty() ? Step::Broken : Step::Inside;
  }
  if (role_ == Role::WrittenArguments) {
    const std::string decoded = decode_string(value_);
    arguments_ = nlohmann::json::accept(decoded) ? decoded : value_;
  }
  return Step::Inside;
}

CallObject::Step CallObject::take_separator(char byte) {
  if (byte == ',' && state_ == State::CommaOrEnd) {
    state_ = State::KeyOrEnd;
    return Step::Inside;
  }
  if (byte != '}' || name_.empty()) return Step::Broken;
  if (!has_arguments_) arguments_ = "{}";
  return Step::End;
}

std::string CallObject::take_arguments() { return name_.empty() ? "" : std::exchange(arguments_, {}); }

}  // namespace millrace
