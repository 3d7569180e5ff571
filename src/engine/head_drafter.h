// Drafts by heads that read the hidden states of the model they draft for: EAGLE-3 and multi-token prediction. A head
// has keys and values for every position. They lie in pages with the numbers of the target's pages, so that sequences
// that share, fork or lose pages need nothing else here.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/runner_drafter.h"

namespace millrace {

class HeadDrafter final : public RunnerDrafter {
 public:
  // Heads for `target`, not loaded yet. The target has these heads in its LoadOptions.
  static std::unique_ptr<Runner> plan(const Runner& target, const std::shared_ptr<const WeightSource>& heads);

  // Whether drafts of a single sequence would raise the rate at a modest acceptance.
  static bool pays(Runner& target, Runner& heads);

  // `heads` comes from plan() and is loaded, and so is the target, which must outlive the drafter.
  HeadDrafter(Runner& target, std::unique_ptr<Runner> heads);
  ~HeadDrafter() override;

  bool follows() const override { return true; }
  void follow(std::span<const FollowedRows> sequences) override;
  void draft_all(std::span<DraftAsk> asks) override;
  void forget(uint64_t sequence) override;
  std::span<const int32_t> alternatives(uint64_t sequence, size_t tokens) const override;

 private:
  // The first tokens of a sequence's next draft and of its branches, from the pass that followed the last step.
  struct Lead {
    uint64_t sequence;
    size_t length;  // of the sequence
    int32_t row;    // of the features that continue the draft
    int32_t alternatives = 0;
    std::array<int32_t, 1 + kMostBranches> tokens = {-1};  // the likeliest first
  };

  void add_followed(const FollowedRows& rows);
  void add_row(Chain& chain, int32_t pass) override;  // Chain::at: the row of its features
  std::span<const int32_t> run_rows() override { return run(runner_->features(), /*own=*/true); }
  std::span<const int32_t> run(Matrix features, bool own, int32_t alternatives = 0);
  void take_leads(std::span<const int32_t> chosen);
  const Lead* lead_of(uint64_t sequence, size_t tokens) const;
  int32_t token_of(int32_t row) const override;

  Runner& target_;
  std::vector<int32_t> vocabulary_;    // the target's token of each logit; empty: the same
  int32_t vocab_;                      // of the target
  std::vector<int32_t> feature_rows_;  // by row of batch_
  std::vector<Lead> leads_;
};

}  // namespace millrace
