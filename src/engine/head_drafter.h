// Drafts by heads that read the hidden states of the model they draft for: EAGLE-3 and multi-token prediction. A head
// has keys and values for every position. They lie in pages with the numbers of the target's pages, so that sequences
// that share, fork or lose pages need nothing else here.
#pragma once

#include <memory>
#include <vector>

#include "engine/drafter.h"
#include "engine/runner.h"
#include "engine/step_batch.h"
#include "engine/step_pacer.h"

namespace millrace {

class HeadDrafter final : public Drafter {
 public:
  // Heads for `target`, not loaded yet. The target is loaded, with these heads in its LoadOptions.
  static std::unique_ptr<Runner> plan(const Runner& target, const std::shared_ptr<const WeightSource>& heads);

  // Whether drafts of a single sequence would raise the rate at a modest acceptance.
  static bool pays(Runner& target, Runner& heads);

  // `heads` comes from plan() and is loaded. The target must outlive the drafter.
  HeadDrafter(Runner& target, std::unique_ptr<Runner> heads);
  ~HeadDrafter() override;

  bool follows() const override { return true; }
  void follow(std::span<const FollowedRows> sequences) override;
  void draft_all(std::span<DraftAsk> asks) override;
  int32_t most_tokens() const override { return kMostTokens; }
  double pass_us(int64_t sequences) const override { return estimate_.us(sequences, 0, 0, 0); }
  void forget(uint64_t sequence) override;

  Runner& runner() { return *runner_; }
  static constexpr int32_t kMostTokens = 8;

 private:
  // The first token of a sequence's next draft, from the pass that followed the last step.
  struct Lead {
    uint64_t sequence;
    size_t length;       // of the sequence
    int32_t token, row;  // row: of the features that continue the draft
  };
  struct Chain {
    DraftAsk* ask;
    int32_t row;
  };

  std::span<const int32_t> run(Matrix features, bool own);
  int32_t target_token(int32_t row) const;

  Runner& target_;
  std::unique_ptr<Runner> runner_;
  StepEstimate estimate_;
  std::vector<int32_t> vocabulary_;  // the target's token of each logit; empty: the same
  int32_t vocab_;                    // of the target
  StepBatch batch_;
  std::vector<int32_t> feature_rows_;  // by row of batch_
  std::vector<Lead> leads_;
  std::vector<Chain> chains_;
};

}  // namespace millrace
