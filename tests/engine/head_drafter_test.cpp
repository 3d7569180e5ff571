// Draft heads: logits against a plain PyTorch reference, texts that stay the same, and heads that are right.
#include "engine/head_drafter.h"

#include <fstream>

#include "base/error.h"
#include "engine/drafts_fixture.h"
#include "fresh_seed.h"
#include "models/draft_heads.h"

namespace millrace {
namespace {

std::filesystem::path heads_folder() { return std::filesystem::path(MILLRACE_TEST_DATA) / "heads"; }
std::string in_heads(const std::string& name) { return (heads_folder() / name).string(); }

struct HeadCase {
  const char *name, *target, *heads;  // below tests/data/heads
};
// MTP heads are in their target's file.
constexpr HeadCase kMtp[] = {{"deepseek_v3", "deepseek_v3", "deepseek_v3"},
                             {"glm4_moe", "glm4_moe", "glm4_moe"},
                             {"glm4_moe_gguf", "glm4_moe/model.gguf", "glm4_moe/model.gguf"},
                             {"qwen3_next", "qwen3_next", "qwen3_next"},
                             {"qwen3_next_gguf", "qwen3_next/model.gguf", "qwen3_next/model.gguf"}};
constexpr HeadCase kEagle3[] = {{"eagle3", "eagle3_target", "eagle3"},
                                {"eagle3_switches", "eagle3_target", "eagle3_switches"}};
constexpr HeadCase kRight[] = {{"right_eagle3", "right_eagle3_target", "right_eagle3"},
                               {"right_mtp", "right_mtp", "right_mtp"}};

std::shared_ptr<const WeightSource> open(const std::string& name) { return open_weights(in_heads(name)); }

std::unique_ptr<Runner> load_target(const HeadCase& c, LoadOptions options) {
  auto target = open(c.target);
  options.heads = std::string(c.target) == c.heads ? target : open(c.heads);
  auto runner = std::make_unique<Runner>(target, options);
  runner->load();
  return runner;
}

std::unique_ptr<Runner> load_heads(const Runner& target) {
  auto heads = HeadDrafter::plan(target, target.options().heads);
  heads->load();
  return heads;
}

struct Reference {
  std::vector<int32_t> tokens, drafted;
  std::vector<float> logits, chain;
};
Reference read_reference(const HeadCase& c) {
  const auto folder = std::filesystem::path(c.heads).extension() == ".gguf" ? (heads_folder() / c.heads).parent_path()
                                                                            : heads_folder() / c.heads;
  const MappedFile file(folder / "expected.safetensors");
  Reference reference;
  const auto copy = [](const TensorInfo& tensor, auto& out) {
    out.resize(tensor.bytes / sizeof(out[0]));
    std::memcpy(out.data(), tensor.data, tensor.bytes);
  };
  for (const TensorInfo& tensor : read_safetensors(file.bytes(), "expected")) {
    if (tensor.name == "tokens") copy(tensor, reference.tokens);
    if (tensor.name == "drafted") copy(tensor, reference.drafted);
    if (tensor.name == "logits") copy(tensor, reference.logits);
    if (tensor.name == "chain") copy(tensor, reference.chain);
  }
  return reference;
}

// The largest difference, relative to the largest value.
double error_of(const Matrix& logits, std::span<const float> wanted) {
  EXPECT_EQ(static_cast<size_t>(logits.rows * logits.cols), wanted.size());
  double largest = 0, error = 0;
  for (int64_t i = 0; i < logits.rows; ++i) {
    for (int64_t j = 0; j < logits.cols; ++j) {
      const double want = wanted[static_cast<size_t>(i * logits.cols + j)];
      largest = std::max(largest, std::abs(want));
      error = std::max(error, std::abs(logits.row<float>(i)[j] - want));
    }
  }
  return error / largest;
}

class HeadLogitsTest : public testing::TestWithParam<std::tuple<HeadCase, Where>> {};

// Each row of logits, and a chain in which the head continues from its own hidden states. On a GPU the second round
// replays what the first one recorded.
TEST_P(HeadLogitsTest, AreThoseOfTheReference) {
  const auto& [head_case, where] = GetParam();
  const Reference want = read_reference(head_case);
  ASSERT_GT(want.tokens.size(), 8u);
  const auto length = static_cast<int32_t>(want.tokens.size());
  const auto target = load_target(head_case, at(where, {.threads = 1,
                                                        .exact = true,
                                                        .context = 64,
                                                        .sequences = length,
                                                        .rows = length,
                                                        .kv_tokens = 64,
                                                        .block_size = 16}));
  const auto heads = load_heads(*target);
  BlockTable table = target->state().new_table(64);
  ASSERT_TRUE(table.reserve(64));
  const Slot slot = target->state().new_slot();
  StepBatch step(length, 1, length);
  step.add(want.tokens, 0, length, table.pages(), StepBatch::Logits::Last, slot.id());
  target->run(step.batch());

  std::vector<int32_t> rows(want.tokens.size() - 1);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  step.clear();
  step.add(std::span(want.tokens).subspan(1), 0, length, table.pages(), StepBatch::Logits::All);
  Batch batch = step.batch();
  batch.features = {target->features(), rows, false};
  EXPECT_LT(error_of(heads->forward(batch), want.logits), 1e-3);

  const size_t vocab = want.logits.size() / (want.tokens.size() - 1);
  // The last row alone, which is also the first of the chain.
  const auto last_row = [&] {
    step.clear();
    step.add({&want.tokens.back(), 1}, length - 2, length, table.pages(), StepBatch::Logits::Last);
    rows = {length - 2};
    batch = step.batch();
    batch.features = {target->features(), rows, false};
    EXPECT_LT(error_of(heads->forward(batch), std::span(want.chain).first(vocab)), 1e-3);
  };
  for (int round = 0; round < 2; ++round) {
    last_row();
    rows = {0};
    for (int32_t i = 1; i < static_cast<int32_t>(want.drafted.size()); ++i) {
      step.clear();
      step.add({&want.drafted[static_cast<size_t>(i) - 1], 1}, length - 2 + i, length + i, table.pages(),
               StepBatch::Logits::Last);
      batch = step.batch();
      batch.features = {heads->features(), rows, true};
      const auto row = std::span(want.chain).subspan(static_cast<size_t>(i) * vocab, vocab);
      EXPECT_LT(error_of(heads->forward(batch), row), 1e-3) << "token " << i << " of the draft, round " << round;
    }
  }
}

constexpr auto kCaseName = [](const auto& info) {
  const auto& [head_case, where] = info.param;
  return std::string(head_case.name) + "_" + name_of(testing::TestParamInfo<Where>(where, 0));
};
INSTANTIATE_TEST_SUITE_P(Mtp, HeadLogitsTest,
                         testing::Combine(testing::ValuesIn(kMtp), testing::ValuesIn(tested_places())), kCaseName);
INSTANTIATE_TEST_SUITE_P(Eagle3, HeadLogitsTest,
                         testing::Combine(testing::ValuesIn(kEagle3), testing::ValuesIn(tested_places())), kCaseName);

class HeadDrafterTest : public DraftsTest {
 protected:
  void start(const HeadCase& c, const LoadOptions& options) {
    engine_.reset();
    drafter_.reset();
    runner_ = load_target(c, at(GetParam(), options));
    vocab_ = static_cast<int32_t>(runner_->model().config().vocab);
    drafter_ = std::make_unique<HeadDrafter>(*runner_, load_heads(*runner_));
  }
  void TearDown() override {
    engine_.reset();
    drafter_.reset();
  }
  EngineOptions with_drafts(int32_t tokens, bool by_cost = false) {
    return {.drafter = drafter_.get(), .draft_tokens = tokens, .drafts_by_cost = by_cost};
  }
  std::vector<Request> requests(int32_t count, int32_t tokens) const {
    std::vector<Request> all;
    for (int32_t i = 0; i < count; ++i) {
      auto text = prompt(5 + 9 * static_cast<size_t>(i), i);
      for (int32_t& token : text) token %= vocab_;
      all.push_back({std::move(text), {.temperature = 0}, tokens + i});
    }
    return all;
  }
  // Greedy and drawn ones, with log-probabilities and with two choices.
  std::vector<Request> mixed_requests() const {
    auto all = requests(5, 20);
    all[1].sampling = {.temperature = 0.9f, .seed = 4};
    all[2].sampling = {.temperature = 0, .logprobs = 2};
    all[3].choices = 2;
    all[3].sampling = {.temperature = 1, .seed = 5};
    return all;
  }
  // Before the drafter, which refers to the runner.
  std::unique_ptr<HeadDrafter> drafter_;
};

TEST_P(HeadDrafterTest, RandomHeadsChangeNoText) {
  for (const auto& cases : {std::span<const HeadCase>(kMtp), std::span<const HeadCase>(kEagle3)}) {
    for (const HeadCase& c : cases) {
      if (std::string(c.name).ends_with("_gguf")) continue;
      SCOPED_TRACE(c.name);
      start(c, with_logit_rows());
      const Make make = [&] { return mixed_requests(); };
      const Answers alone = run(make);
      EXPECT_EQ(run(make, with_drafts(4)), alone);
      EXPECT_GT(stats_.drafted_tokens, 50u);
      EXPECT_EQ(run(make, with_drafts(3, /*by_cost=*/true)), alone);
    }
  }
}

// The default precision, with batches that are not invariant: random heads are mostly wrong, and the texts of these
// models have clear winners.
TEST_P(HeadDrafterTest, GreedyTextStaysTheSameByDefault) {
  for (const HeadCase& c : {kMtp[0], kMtp[1], kMtp[3], kRight[0], kRight[1]}) {
    SCOPED_TRACE(c.name);
    LoadOptions options = with_logit_rows(0, /*invariant=*/false);
    options.exact = false;
    start(c, options);
    const Make make = [&] { return requests(1, 24); };
    const Answers alone = run(make);
    EXPECT_EQ(run(make, with_drafts(3)), alone);
  }
}

TEST_P(HeadDrafterTest, RightHeadsAreAccepted) {
  for (const HeadCase& c : kRight) {
    SCOPED_TRACE(c.name);
    start(c, with_logit_rows());
    const Make make = [&] { return requests(6, 40); };  // more than run at the same time
    const Answers alone = run(make);
    const uint64_t steps = stats_.steps;
    EXPECT_EQ(run(make, with_drafts(4)), alone);
    EXPECT_GT(stats_.drafted_tokens, 150u);
    EXPECT_GE(static_cast<double>(stats_.accepted_tokens), 0.95 * static_cast<double>(stats_.drafted_tokens));
    EXPECT_LT(stats_.steps, steps / 2);
  }
}

TEST_P(HeadDrafterTest, BranchesOfRandomHeadsChangeNoText) {
  for (const HeadCase& c : {kMtp[0], kMtp[1], kMtp[3], kEagle3[0], kEagle3[1]}) {
    SCOPED_TRACE(c.name);
    start(c, with_branches());
    const Make make = [&] { return mixed_requests(); };
    const Answers alone = run(make);
    EngineOptions options = with_drafts(4);
    EXPECT_EQ(run(make, options), alone);
    const uint64_t drafted = stats_.drafted_tokens;
    options.draft_width = 4;
    EXPECT_EQ(run(make, options), alone);
    const bool has_branches = stats_.drafted_tokens > 2 * drafted;
    EXPECT_NE(has_branches, runner_->state().has_slots());
    options.drafts_by_cost = true;
    EXPECT_EQ(run(make, options), alone);
  }
}

// The heads' best guess becomes a branch, and their second one the draft.
class SwappedHeads final : public Drafter {
 public:
  explicit SwappedHeads(HeadDrafter& heads) : heads_(heads) {}
  bool follows() const override { return true; }
  void follow(std::span<const FollowedRows> sequences) override { heads_.follow(sequences); }
  void forget(uint64_t sequence) override { heads_.forget(sequence); }
  std::span<const int32_t> alternatives(uint64_t sequence, size_t tokens) const override {
    return heads_.alternatives(sequence, tokens);
  }
  void draft_all(std::span<DraftAsk> asks) override {
    const auto swap = [&] {
      for (DraftAsk& ask : asks) ask.branch = ask.branch > 1 ? ask.branch : 1 - ask.branch;
    };
    swap();
    heads_.draft_all(asks);
    swap();
  }

 private:
  HeadDrafter& heads_;
};

// Pages of branches hold the heads' rows, too: the drafts behind an accepted branch are as good as those behind a
// draft.
TEST_P(HeadDrafterTest, RightBranchesAreAccepted) {
  for (const HeadCase& c : kRight) {
    for (const int64_t kv_tokens : {0, 320}) {
      SCOPED_TRACE(testing::Message() << c.name << ", " << kv_tokens << " positions");
      start(c, with_branches(kv_tokens));
      const Make make = [&] {
        auto all = requests(6, 40);
        all[1].sampling = {.temperature = 0.01f, .seed = 3};
        return all;
      };
      const Answers alone = run(make);
      const uint64_t steps = stats_.steps;
      SwappedHeads swapped(*drafter_);
      EngineOptions options = with_drafts(4);
      options.drafter = &swapped;
      options.draft_width = 2;
      EXPECT_EQ(run(make, options), alone);
      EXPECT_LT(stats_.steps, kv_tokens == 0 ? steps / 2 : steps);
      if (kv_tokens > 0) continue;  // now and then a branch finds no page
      EXPECT_GE(static_cast<double>(stats_.accepted_tokens), 0.47 * static_cast<double>(stats_.drafted_tokens));
      EXPECT_LE(static_cast<double>(stats_.accepted_tokens), 0.53 * static_cast<double>(stats_.drafted_tokens));
    }
  }
}

TEST_P(HeadDrafterTest, CancelledSequencesWithBranches) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  start(kRight[0], with_branches(224));
  EngineOptions options = with_drafts(3);
  options.draft_width = 3;
  engine_ = std::make_unique<Engine>(*runner_, options);
  std::vector<RequestId> ids;
  for (int i = 0; i < 30; ++i) {
    Request request{prompt(1 + random() % 60, i), {.temperature = 0}, 30};
    for (int32_t& token : request.prompt) token %= vocab_;
    request.choices = 1 + i % 2;
    ids.push_back(engine_->submit(std::move(request)));
    for (auto steps = random() % 4; steps-- > 0;) engine_->step([](const Emission&) {});
    if (random() % 2 == 0) engine_->cancel(ids[random() % ids.size()]);
  }
  while (engine_->step([](const Emission&) {})) {
  }
  engine_->fill(stats_);
  EXPECT_EQ(stats_.running + stats_.waiting + stats_.kv_blocks_used, 0);
  engine_.reset();
  EXPECT_EQ(runner_->state().blocks().free(), runner_->state().blocks().size());
}

// Chunks, prefix hits, preemption and forks keep the heads' state with the sequences: acceptance stays.
TEST_P(HeadDrafterTest, StateFollowsTheSequences) {
  const auto accepted = [&] {
    return static_cast<double>(stats_.accepted_tokens) / static_cast<double>(stats_.drafted_tokens);
  };
  LoadOptions options = with_logit_rows(192);  // little more than the longest sequence needs
  options.rows = 24;
  start(kRight[1], options);
  const Make make = [&] {
    auto all = requests(6, 60);
    all.push_back({all[5].prompt, {.temperature = 0}, 30});  // begins as another
    all[2].choices = 2;
    all[2].sampling = {.temperature = 0};
    return all;
  };
  const Answers alone = run(make);
  EXPECT_EQ(run(make, with_drafts(3)), alone);
  EXPECT_GT(stats_.preemptions, 0u);
  EXPECT_GT(accepted(), 0.9);

  // A second turn continues behind pages that the tree kept.
  start(kRight[1], with_logit_rows());
  std::vector<int32_t> text = prompt(37, 3);
  engine_ = std::make_unique<Engine>(*runner_, with_drafts(3));
  for (int turn = 0; turn < 3; ++turn) {
    engine_->submit({text, {.temperature = 0}, 20});
    while (engine_->step([&](const Emission& e) { text.push_back(e.token); })) {
    }
  }
  stats_ = {};
  engine_->fill(stats_);
  EXPECT_GT(stats_.cached_tokens, 60u);
  EXPECT_GT(accepted(), 0.9);
}

// Prompts of several chunks join sequences that generate: the heads follow both in one batch.
TEST_P(HeadDrafterTest, PromptsBesideDrafts) {
  LoadOptions options = with_logit_rows();
  options.rows = 24;
  start(kRight[0], options);
  const Make make = [&] {
    auto all = requests(6, 40);
    std::swap(all[0], all[5]);  // the longest prompt is admitted first
    return all;
  };
  const Answers alone = run(make);
  EXPECT_EQ(run(make, with_drafts(3)), alone);
  EXPECT_GE(static_cast<double>(stats_.accepted_tokens), 0.95 * static_cast<double>(stats_.drafted_tokens));
}

// Where steps run ahead, those of a sequence that takes no drafts do, although the engine has heads.
TEST_P(HeadDrafterTest, StepsWithoutDraftsRunAhead) {
  start(kRight[0], with_logit_rows());
  const Make make = [&] {
    auto all = requests(2, 20);
    for (Request& request : all) request.draft_tokens = 0;
    return all;
  };
  const Answers alone = run(make);
  EXPECT_EQ(run(make, with_drafts(3)), alone);
  EXPECT_EQ(stats_.drafted_tokens, 0u);
  EXPECT_EQ(stats_.steps_ahead > 0, GetParam() != Where::Cpu);
}

TEST_P(HeadDrafterTest, CancelledSequences) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  start(kRight[0], with_logit_rows(192));
  engine_ = std::make_unique<Engine>(*runner_, with_drafts(3));
  std::vector<RequestId> ids;
  for (int i = 0; i < 30; ++i) {
    Request request{prompt(1 + random() % 60, i), {.temperature = 0}, 30};
    request.choices = 1 + i % 2;
    ids.push_back(engine_->submit(std::move(request)));
    for (auto steps = random() % 4; steps-- > 0;) engine_->step([](const Emission&) {});
    if (random() % 2 == 0) engine_->cancel(ids[random() % ids.size()]);
  }
  while (engine_->step([](const Emission&) {})) {
  }
  engine_->fill(stats_);
  EXPECT_EQ(stats_.running + stats_.waiting + stats_.kv_blocks_used, 0);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, HeadDrafterTest, testing::ValuesIn(tested_places()), name_of);

TEST(Heads, ReadTheseLayers) {
  EXPECT_EQ(head_taps(*open("eagle3"), 32).layers, (std::vector<int>{2, 16, 29}));
  EXPECT_EQ(head_taps(*open("eagle3_switches"), 32).layers, (std::vector<int>{1, 4, 7}));
  EXPECT_TRUE(head_taps(*open("glm4_moe"), 2).last);
  EXPECT_TRUE(carries_heads(*open("qwen3_next/model.gguf")));
  EXPECT_FALSE(carries_heads(*open_weights((goldens_folder() / "qwen3_next").string())));
  EXPECT_FALSE(carries_heads(*open_weights((goldens_folder() / "glm4_moe").string())));
}

// Copies a folder of heads with a changed config or without a tensor, and returns the message of the refusal.
class BadHeads : public testing::Test {
 protected:
  std::string refusal(const std::string& from, const std::function<void(nlohmann::json&)>& change,
                      const std::string& renamed = "", const HeadCase& target = kEagle3[0], bool spoil = false) {
    const auto folder = std::filesystem::path(testing::TempDir()) / "millrace_bad_heads";
    std::filesystem::remove_all(folder);
    std::filesystem::copy(heads_folder() / from, folder);
    std::ifstream in(folder / "config.json");
    auto config = nlohmann::json::parse(in);
    change(config);
    std::ofstream(folder / "config.json") << config.dump();
    if (!renamed.empty()) damage(folder / "model.safetensors", renamed, spoil);
    try {
      LoadOptions options{.threads = 1, .exact = true, .context = 64, .sequences = 2, .rows = 16};
      auto source = std::shared_ptr<const WeightSource>(open_weights(folder.string()));
      options.heads = source;
      Runner runner(open(target.target), options);
      runner.load();
      auto heads = HeadDrafter::plan(runner, source);
      heads->load();
      HeadDrafter drafter(runner, std::move(heads));
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
      return e.what();
    }
    return "accepted";
  }

 private:
  // Renames a tensor, or overwrites its last value.
  static void damage(const std::filesystem::path& path, const std::string& name, bool spoil) {
    std::ifstream in(path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    in.close();
    for (const TensorInfo& tensor : read_safetensors(std::as_bytes(std::span(bytes)), "heads")) {
      if (!spoil || tensor.name != name) continue;
      const auto end = reinterpret_cast<const char*>(tensor.data) + tensor.bytes - bytes.data();
      bytes[static_cast<size_t>(end) - 7] = 1;  // adds 256 or more
    }
    const auto at = bytes.find('"' + name + '"');
    ASSERT_NE(at, std::string::npos);
    if (!spoil) bytes[at + 1] = '_';
    std::ofstream(path, std::ios::binary) << bytes;
  }
};

TEST_F(BadHeads, GetOneLine) {
  using testing::HasSubstr;
  const auto same = [](nlohmann::json&) {};
  EXPECT_THAT(refusal("eagle3", [](auto& c) { c["vocab_size"] = 95; }), HasSubstr("95 tokens, not 96"));
  EXPECT_THAT(refusal("eagle3", [](auto& c) { c["draft_vocab_size"] = 61; }), HasSubstr("lm_head.weight"));
  EXPECT_THAT(refusal("eagle3", [](auto& c) { c["hidden_size"] = 32; }), HasSubstr("tensor"));
  EXPECT_THAT(refusal("eagle3", [](auto& c) { c["target_hidden_size"] = 32; }), HasSubstr("32 values, not 16"));
  EXPECT_THAT(refusal("eagle3", [](auto& c) { c["num_hidden_layers"] = 2; }), HasSubstr("2 layers"));
  EXPECT_THAT(refusal("eagle3",
                      [](auto& c) {
                        c["eagle_aux_hidden_state_layer_ids"] = {2, 4, 9};
                      }),
              HasSubstr("eagle_aux_hidden_state_layer_ids"));
  EXPECT_THAT(refusal("eagle3", [](auto& c) { c["eagle_aux_hidden_state_layer_ids"] = {2, 4}; }), HasSubstr("three"));
  for (const char* tensor : {"fc.weight", "midlayer.hidden_norm.weight", "midlayer.self_attn.q_proj.weight",
                             "lm_head.weight", "norm.weight"})
    EXPECT_THAT(refusal("eagle3", same, tensor), HasSubstr(tensor)) << tensor;
  EXPECT_THAT(refusal("eagle3", same, "", {"", "right_eagle3_target", ""}), HasSubstr("fc.weight"));
  EXPECT_THAT(refusal("eagle3", same, "d2t"), HasSubstr("_2t"));
  EXPECT_THAT(refusal("eagle3", same, "d2t", kEagle3[0], /*spoil=*/true), HasSubstr("outside of the vocabulary"));
  EXPECT_THAT(refusal("eagle3_target", same), HasSubstr("carries no heads"));
  for (const char* tensor : {"model.layers.2.enorm.weight", "model.layers.2.input_layernorm.weight"})
    EXPECT_THAT(refusal("glm4_moe", same, tensor, kMtp[1]), HasSubstr(tensor)) << tensor;
}

}  // namespace
}  // namespace millrace
