// Constraints on answers in the harmony format of gpt-oss, whose messages begin with headers of special tokens: which
// messages an answer may have, which grammar holds in a message's body, and a token budget for the analysis channel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sampling/constraint.h"

namespace millrace {

// A message that ends the answer: the final one, or a call of a tool.
struct ChannelRoute {
  std::vector<int32_t> header;       // behind "<|start|>assistant", up to and with <|message|>
  std::string function;              // of a call; empty: the final channel
  std::unique_ptr<Constraint> body;  // null: free
};

struct ChannelRules {
  int32_t start = -1, channel = -1, message = -1, end = -1;  // the special tokens
  std::vector<int32_t> assistant;                            // the tokens of "assistant"
  std::vector<int32_t> analysis;   // header of the analysis channel, as in ChannelRoute; empty: no analysis allowed
  std::vector<int32_t> forbidden;  // if strict: special and end tokens that an analysis must not contain
  std::vector<int32_t> opened;     // the beginning of the first message that the prompt contains
  int32_t budget = -1;             // tokens of analysis; -1: no limit. The first route follows when they are used up
  // The answer is at most one analysis and then one of the routes. Otherwise messages are free, and a route's grammar
  // holds if the model chooses it.
  bool strict = false;
  std::function<std::string(int32_t)> text_of;  // the text of a token, special ones included; needed unless strict
};

std::unique_ptr<Constraint> make_channel_constraint(ChannelRules rules, std::vector<ChannelRoute> routes);

}  // namespace millrace
