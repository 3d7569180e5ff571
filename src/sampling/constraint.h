// A constraint on the next token of a sequence, as a token mask: grammars, schemas, thinking budgets. The engine asks
// for a mask before each token and reports the sampled token. Draft tokens are accepted on trial and rolled back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace {

// Number of 32-bit words of a mask. Bit t % 32 of word t / 32 belongs to token t.
constexpr size_t mask_words(int64_t vocab) { return static_cast<size_t>((vocab + 31) / 32); }

// The state of one sequence. After submission only the engine's thread calls it. fill_mask() and accept() run between
// two steps of the model and delay every stream: they must take far less than a millisecond and must not throw.
class Constraint {
 public:
  virtual ~Constraint() = default;

  // Writes all of `words`, a 1 for each allowed token. Returns false, with `words` untouched, if every token is
  // allowed. End tokens are allowed where the text may end. Unless terminated(), at least one token must be allowed.
  // The sampler applies the mask before temperature and filters.
  virtual bool fill_mask(std::span<uint32_t> words) = 0;

  // Advances by a sampled token, which the mask of this state allows. Not called for an end token, which ends the stream.
  // The new state may not depend on whether a mask was filled before.
  virtual void accept(int32_t token) = 0;

  // mark() remembers the state, roll_back() returns to it. There is one mark; a later one replaces it. Both run in every
  // step with drafts, so they must be cheap.
  virtual void mark() = 0;
  virtual void roll_back() = 0;

  // No token can follow. The stream ends with FinishReason::Stop and without an end token.
  virtual bool terminated() const = 0;

  // The constraint can no longer be satisfied: no token of the vocabulary fits, or the search takes too long. The
  // stream ends with an error.
  virtual bool failed() const { return false; }
};

}  // namespace millrace
