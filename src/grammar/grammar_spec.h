// The required form of an answer as plain data. It is the key of the cache of compiled grammars.
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
    Ebnf,        // text: EBNF rules; `root` is the answer
    ToolCalls,   // one or more calls of `tools`, written as `syntax` says
  };

  // A list of calls: first  before NAME middle ARGUMENTS after  (between ...)*  end
  struct CallSyntax {
    std::string first, before, middle, after, between, end;
    bool operator==(const CallSyntax&) const = default;
  };
  struct Tool {
    std::string name;
    std::string schema;  // JSON Schema of the arguments; empty: any object
    bool operator==(const Tool&) const = default;
  };

  Kind kind = Kind::JsonObject;
  std::string text;
  CallSyntax syntax;
  std::vector<Tool> tools;
  bool parallel = false;  // of ToolCalls: more than one call is allowed

  bool operator==(const GrammarSpec&) const = default;
};

}  // namespace millrace
