// Drafts by a smaller model of the same vocabulary: greedy chains. Its cache follows the sequences: it computes their
// prompts, keeps the rows of its accepted draft tokens and overwrites those of rejected ones.
#pragma once

#include <memory>
#include <vector>

#include "engine/runner_drafter.h"
#include "text/tokenizer.h"

namespace millrace {

class ModelDrafter final : public RunnerDrafter {
 public:
  // A draft model beside `main`, not loaded yet: the same device, threads, sequences and number of positions.
  static std::unique_ptr<Runner> plan(const Runner& main, const std::shared_ptr<const WeightSource>& draft);

  // Throws Usage unless all tokens are the same. The sizes of the models' output rows may differ.
  static void check_vocabulary(const Tokenizer& main, const Tokenizer& draft, const std::string& name);

  // `runner` comes from plan() and is loaded. Throws Unsupported for a model with recurrent state, which cannot drop
  // rejected tokens.
  explicit ModelDrafter(std::unique_ptr<Runner> runner);

  void draft_all(std::span<DraftAsk> asks) override;
  void forget(uint64_t sequence) override;

 private:
  // A sequence of the engine: its pages here, and the drafted tokens after the first `known` ones of the sequence.
  struct Followed {
    explicit Followed(BlockTable pages) : table(std::move(pages)) { drafted.reserve(kMostTokens); }
    bool used = false;
    uint64_t sequence = 0;
    BlockTable table;
    int32_t computed = 0, known = 0;  // rows in the cache; of those: tokens of the sequence
    std::vector<int32_t> drafted;
  };

  int32_t find(const DraftAsk& ask);  // its entry of followed_; -1: none is free
  static void drop_rejected(Followed& followed, std::span<const int32_t> tokens);
  void add_pending(const Chain& asked);
  Followed& followed(const Chain& chain) { return followed_[static_cast<size_t>(chain.at)]; }
  void add_row(Chain& chain, int32_t pass) override;  // Chain::at: its entry of followed_
  std::span<const int32_t> run_rows() override { return runner_->run(batch_.batch()); }
  int32_t token_of(int32_t row) const override { return row < vocab_ ? row : -1; }

  int32_t vocab_, longest_;  // tokens of a sequence that it can follow
  std::vector<Followed> followed_;
  std::vector<Chain> asked_;  // of this step
};

}  // namespace millrace
