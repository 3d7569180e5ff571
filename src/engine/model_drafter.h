// Drafts by a smaller model of the same vocabulary: greedy chains. Its cache follows the sequences: it computes their
// prompts, keeps the rows of its accepted draft tokens and overwrites those of rejected ones.
#pragma once

#include <memory>
#include <vector>

#include "engine/drafter.h"
#include "engine/runner.h"
#include "engine/step_batch.h"
#include "engine/step_pacer.h"
#include "text/tokenizer.h"

namespace millrace {

class ModelDrafter final : public Drafter {
 public:
  // A draft model beside `main`, not loaded yet: the same device, threads, sequences and number of positions.
  static std::unique_ptr<Runner> plan(const Runner& main, const std::shared_ptr<const WeightSource>& draft);

  // Throws Usage unless all tokens are the same. The sizes of the models' output rows may differ.
  static void check_vocabulary(const Tokenizer& main, const Tokenizer& draft, const std::string& name);

  // `runner` comes from plan() and is loaded. Throws Unsupported for a model with recurrent state, which cannot drop
  // rejected tokens.
  explicit ModelDrafter(std::unique_ptr<Runner> runner);

  void draft_all(std::span<DraftAsk> asks) override;
  int32_t most_tokens() const override { return kMostTokens; }
  double pass_us(int64_t sequences) const override { return estimate_.us(sequences, 0, 0, 0); }
  void forget(uint64_t sequence) override;

  Runner& runner() { return *runner_; }
  static constexpr int32_t kMostTokens = 8;

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
  struct Chain {
    DraftAsk* ask;
    Followed* followed;
  };

  Followed* follow(const DraftAsk& ask);
  static void drop_rejected(Followed& followed, std::span<const int32_t> tokens);
  void add_pending(DraftAsk& ask, Followed& followed);
  void extend();
  bool takes(int32_t token) const { return token >= 0 && token < vocab_; }

  std::unique_ptr<Runner> runner_;
  StepEstimate estimate_;
  int32_t vocab_, longest_;  // tokens of a sequence that it can follow
  StepBatch batch_;
  std::vector<Followed> followed_;
  std::vector<Chain> asked_;   // of this step
  std::vector<Chain> chains_;  // of the current pass, in the order of its rows with logits
};

}  // namespace millrace
