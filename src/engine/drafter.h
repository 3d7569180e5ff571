// Proposes draft tokens, so that one step can verify several tokens of a sequence (speculative decoding). The engine
// chooses every token itself: a wrong draft wastes rows of a step and never changes the text.
#pragma once

#include <cstdint>
#include <span>

namespace millrace {

class Runner;

// Further drafts of a sequence in one step, at most: each begins with another guess of the first token.
constexpr int32_t kMostBranches = 3;

struct DraftAsk {
  uint64_t sequence = 0;            // identifies the sequence until forget()
  std::span<const int32_t> tokens;  // prompt and generated tokens
  std::span<int32_t> draft;         // the drafter writes its guess of the next tokens to the front
  int32_t given = 0;                // and its length here; 0: no guess
  std::span<const int32_t> pages;   // of the sequence, with room for all of the draft but its last token
  int32_t branch = 0;               // 0: the likeliest draft; r: that behind alternative r - 1 (Drafter::alternatives)
};

// The rows of one sequence that the last step computed, without those of rejected drafts.
struct FollowedRows {
  uint64_t sequence = 0;
  std::span<const int32_t> tokens, pages;  // of the sequence; the token behind the last row is known
  int32_t row = 0;                         // the first row in the step,
  int32_t position = 0, rows = 0;          // its position, and the number of rows
  bool drafts = false;                     // a draft may be asked for next
  bool decoded = false;                    // a token and its drafts, not a chunk of a prompt
  int32_t alternatives = 0;                // so many further guesses of the next draft's first token are wanted
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Drafts for all sequences of a step, on the engine's thread before the step. Each draft must depend on the
  // sequence's tokens only. Must not allocate, and throws only if a device fails.
  virtual void draft_all(std::span<DraftAsk> asks) = 0;

  // Tokens per draft that are worth asking for.
  virtual int32_t most_tokens() const { return 4; }
  // Time of a pass that extends the drafts of so many sequences by one token. 0: too short to count; the engine then
  // asks for drafts first and plans their lengths afterwards.
  virtual double pass_us(int64_t /*sequences*/) const { return 0; }
  virtual Runner* passes() { return nullptr; }  // runs these passes, if any
  // The drafter reads the target's hidden states: it is told the rows of each step while they are in memory, and keeps
  // state in the pages of the sequences. Steps of such sequences do not run ahead.
  virtual bool follows() const { return false; }
  virtual void follow(std::span<const FollowedRows> /*sequences*/) {}
  // Other guesses of the token behind so many tokens of this sequence, the likeliest first: as many as follow() was
  // asked for, or fewer. The drafts that begin with them are branches, with pages of their own (DraftAsk::branch).
  virtual std::span<const int32_t> alternatives(uint64_t /*sequence*/, size_t /*tokens*/) const { return {}; }
  // The sequence ended or was preempted.
  virtual void forget(uint64_t /*sequence*/) {}
};

// Drafts for one sequence after the other.
class SequenceDrafter : public Drafter {
 public:
  void draft_all(std::span<DraftAsk> asks) final {
    for (DraftAsk& ask : asks) ask.given = draft(ask.tokens, ask.draft);
  }
  // Returns the length of the guess.
  virtual int32_t draft(std::span<const int32_t> tokens, std::span<int32_t> draft) = 0;
};

}  // namespace millrace
