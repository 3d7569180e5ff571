// Drafts by a second runner beside the main one: a smaller model, or heads. Its passes extend greedy chains of draft
// tokens, those of all sequences in one batch.
#pragma once

#include <memory>
#include <vector>

#include "engine/drafter.h"
#include "engine/runner.h"
#include "engine/step_batch.h"
#include "engine/step_pacer.h"

namespace millrace {

class RunnerDrafter : public Drafter {
 public:
  int32_t most_tokens() const override { return kMostTokens; }
  double pass_us(int64_t sequences) const override { return estimate_.us(sequences, 0, 0, 0); }
  Runner* passes() override { return runner_.get(); }

  Runner& runner() { return *runner_; }
  static constexpr int32_t kMostTokens = 8;

 protected:
  explicit RunnerDrafter(std::unique_ptr<Runner> runner);  // loaded

  // Of a runner beside `main`: the same device, threads, sequences and sizes of steps.
  static LoadOptions options_beside(const Runner& main);

  // A draft that further passes extend.
  struct Chain {
    DraftAsk* ask;
    int32_t at;  // for the subclass
  };
  // Adds a row for the last token of the draft, which is token number `pass` of it.
  virtual void add_row(Chain& chain, int32_t pass) = 0;
  virtual std::span<const int32_t> run_rows() = 0;  // runs the batch
  virtual int32_t token_of(int32_t row) const = 0;  // the target's token of a row of logits; -1: none

  // Appends a token to the draft of each chain, in the order of the batch's rows with logits.
  void take(std::span<const int32_t> chosen);
  // Runs passes until each draft is as long as asked for.
  void extend_chains();

  std::unique_ptr<Runner> runner_;
  StepBatch batch_;
  std::vector<Chain> chains_;

 private:
  StepEstimate estimate_;
};

}  // namespace millrace
