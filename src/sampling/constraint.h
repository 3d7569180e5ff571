// Token masks of one sequence: grammars, schemas, thinking budgets. The engine fills a mask before each token and
// reports the token that was taken. Draft tokens are accepted on trial and rolled back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace {

// Words of a mask for this many tokens; bit t % 32 of word t / 32 is token t.
constexpr size_t mask_words(int64_t vocab) { return static_cast<size_t>((vocab + 31) / 32); }

// The state of one sequence; the engine's thread alone calls it once the request is submitted. fill_mask() and accept()
// run between two steps of the model and delay every stream: they should take far less than a millisecond, and they do
// not throw.
class Constraint {
 public:
  virtual ~Constraint() = default;

  // Writes all of `words`: 1 for each token that may come next. False: any token may, and `words` was not touched. The
  // end tokens of the request are tokens like others here: they are allowed where the text may end. At least one token
  // must be allowed unless terminated(). The mask goes before everything else: penalties, biases, temperature and
  // filters see what it leaves. accept() must give the same state whether or not a mask was filled before it.
  virtual bool fill_mask(std::span<uint32_t> words) = 0;

  // The token that was taken: one that the mask of this state allows. Not called for an end token: the stream is over
  // then.
  virtual void accept(int32_t token) = 0;

  // mark() remembers the state, roll_back() returns to it: what came between counts as not asked and not accepted.
  // There is one mark; a later one replaces it. Both run for every step with drafts: they must be cheap.
  virtual void mark() = 0;
  virtual void roll_back() = 0;

  // Nothing can follow: the stream ends here with FinishReason::Stop, without an end token.
  virtual bool terminated() const = 0;

  // It cannot be held to any further: no token of the vocabulary fits, or finding one takes too long. The stream ends
  // with an error, not with something else than was asked for.
  virtual bool failed() const { return false; }
};

}  // namespace millrace
