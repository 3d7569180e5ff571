// Proposes draft tokens, so that one step can verify several tokens of a sequence (speculative decoding). The engine
// chooses every token itself: a wrong draft wastes rows of a step and never changes the text.
#pragma once

#include <cstdint>
#include <span>

namespace millrace {

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Writes a guess of the tokens that follow `tokens` (prompt and generated tokens) to the front of `draft` and returns
  // its length, 0 for no guess. Runs on the engine's thread before a step, for one sequence after the other. The draft
  // must depend on `tokens` only. Must not throw or allocate, and should be fast: the step waits for it.
  virtual int32_t draft(std::span<const int32_t> tokens, std::span<int32_t> draft) = 0;
};

}  // namespace millrace
