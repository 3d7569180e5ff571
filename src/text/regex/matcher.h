// Runs a regex program over one text.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/regex/memo.h"
#include "text/regex/program.h"

namespace millrace {

class RegexMatcher {
 public:
  // `remember`: use the memo from the start, not only when a text needs many steps.
  RegexMatcher(const RegexProgram& program, std::string_view text, bool remember = false)
      : program_(program), text_(text) {
    if (remember) memo_.emplace(program_.inner_states, text_.size());
  }

  static constexpr size_t kNoMatch = static_cast<size_t>(-1);

  // The end of the match that begins at `start`, or kNoMatch.
  size_t match(size_t start);

 private:
  using Instruction = RegexProgram::Instruction;

  // A choice point for backtracking.
  struct Frame {
    uint32_t code;      // the instruction that had the choice
    uint32_t position;  // Split, BoundedLoop: its position in the text
    uint32_t lowest;    // loops: the end of the shortest alternative
    uint32_t current;   // loops: the end that is being tried; Split: 1 when the second branch is
  };

  template <bool kRemember>
  size_t run(uint32_t code, size_t position, bool inner);
  template <bool kRemember>
  bool backtrack(size_t base, uint32_t& code, size_t& position);
  template <bool kRemember>
  size_t succeed(size_t base, size_t end, bool inner);
  template <bool kRemember>
  bool look(const Instruction& instruction, size_t position);
  template <bool kRemember>
  size_t loop_end(const Instruction& instruction, size_t position, size_t& known_end);
  template <bool kRemember>
  size_t possessive_end(const Instruction& instruction, size_t position);

  size_t one(uint32_t set,
             size_t position) const;  // length of the character at the position if it is in the set, else 0
  bool holds(RegexNode::Anchor anchor, size_t position) const;
  bool is_word_at(size_t position) const;

  const RegexProgram& program_;
  const std::string_view text_;
  std::vector<Frame> stack_;
  std::optional<RegexMemo> memo_;  // exists once the text has needed many steps
  size_t work_ = 0;                // steps so far
  size_t allowed_ = 0;             // steps before the memo is used
};

}  // namespace millrace
