// Guesses what a sequence generates next, so that one step can check several tokens of it (speculative decoding). The
// engine chooses every token itself: a wrong draft costs rows of a step and never changes the text.
#pragma once

#include <cstdint>
#include <span>

namespace millrace {

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Writes tokens that may follow `tokens` (a prompt and what was generated so far) to the front of `draft` and returns
  // how many, 0 where it has no guess. Called on the engine's thread before a step, for one sequence after the other.
  // The draft must depend on `tokens` alone. Neither throws nor allocates: the step waits for it.
  virtual int32_t draft(std::span<const int32_t> tokens, std::span<int32_t> draft) = 0;
};

}  // namespace millrace
