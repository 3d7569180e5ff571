// What an answer must look like, as plain data: the key under which compiled grammars are kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

struct GrammarSpec {
  enum class Kind : uint8_t {
    JsonObject,  // any JSON object
    JsonSchema,  // text: a JSON Schema
    Regex,       // text: a regular expression that the whole answer matches
    Ebnf,        // text: rules, of which `root` is the answer
    ToolCalls,   // one or more calls of `tools`, written as `syntax` says
  };

  // A list of calls: first  before NAME middle ARGUMENTS after  (between ...)*  end
  struct CallSyntax {
    std::string first, before, middle, after, between, end;
    bool operator==(const CallSyntax&) const = default;
  };
  struct Tool {
    std::string name;
    std::string schema;  // of its arguments, a JSON Schema; empty: any object
    bool operator==(const Tool&) const = default;
  };

  Kind kind = Kind::JsonObject;
  std::string text;
  CallSyntax syntax;
  std::vector<Tool> tools;
  bool parallel = false;  // of ToolCalls: more than one call may come

  bool operator==(const GrammarSpec&) const = default;
};

}  // namespace millrace
