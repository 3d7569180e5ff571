// A second model as drafter: texts stay the same, its cache follows the sequences, and nothing leaks.
#include "engine/model_drafter.h"

#include "engine/drafts_fixture.h"
#include "fresh_seed.h"

namespace millrace {
namespace {

class ModelDrafterTest : public DraftsTest {
 protected:
  std::unique_ptr<ModelDrafter> drafter(const std::string& model) {
    auto draft = ModelDrafter::plan(*runner_, open_weights((goldens_folder() / model).string()));
    draft->load();
    return std::make_unique<ModelDrafter>(std::move(draft));
  }
  static void expect_free(ModelDrafter& drafter) {
    const BlockPool& pool = drafter.runner().state().blocks();
    EXPECT_EQ(pool.free(), pool.size()) << "pages of the draft model";
  }
  std::vector<Request> requests(int32_t count, int32_t tokens) const {
    std::vector<Request> all;
    for (int32_t i = 0; i < count; ++i)
      all.push_back({prompt(7 + 9 * static_cast<size_t>(i), i), {.temperature = 0}, tokens + i});
    return all;
  }
};

TEST_P(ModelDrafterTest, AModelIsItsOwnBestDraft) {
  for (const char* model : {"llama_gqa", "gemma2", "qwen3"}) {
    SCOPED_TRACE(model);
    start(with_logit_rows(), model);
    const Make make = [&] { return requests(6, 30); };  // more than run at the same time
    const Answers alone = run(make);
    const uint64_t steps = stats_.steps;
    const auto same = drafter(model);
    EXPECT_EQ(run(make, {.drafter = same.get(), .draft_tokens = 5}), alone);
    EXPECT_GT(stats_.drafted_tokens, 100u);
    EXPECT_EQ(stats_.accepted_tokens, stats_.drafted_tokens);
    EXPECT_LT(stats_.steps, steps / 2);
    expect_free(*same);
  }
}

TEST_P(ModelDrafterTest, AnotherModelChangesNoText) {
  start(with_logit_rows());
  for (const char* model : {"qwen3", "gemma2", "opt"}) {
    SCOPED_TRACE(model);
    const Make make = [&] {
      auto all = requests(5, 25);
      all[1].sampling = {.temperature = 0.9f, .seed = 4};
      all[2].sampling = {.temperature = 0, .repetition_penalty = 1.3f};
      all[3].sampling = {.temperature = 0, .logprobs = 2};
      return all;
    };
    const Answers alone = run(make);
    const auto other = drafter(model);
    for (const bool by_cost : {false, true}) {
      EXPECT_EQ(run(make, {.drafter = other.get(), .draft_tokens = 4, .drafts_by_cost = by_cost}), alone);
      if (!by_cost) {
        EXPECT_LT(stats_.accepted_tokens, stats_.drafted_tokens / 2);
      }
      expect_free(*other);
    }
  }
}

TEST_P(ModelDrafterTest, TextsOfEveryKindStayTheSame) {
  start(with_logit_rows());
  const auto same = drafter("llama_gqa");
  const Make make = [&] {
    auto all = requests(6, 20);
    all[0].choices = 3;
    all[0].sampling = {.temperature = 1, .seed = 5};
    all[1].draft_tokens = 2;
    all[2].end_tokens = {11, 30, 55, 70, 83};
    all[3].prompt = prompt(101, 3);  // the context ends inside of a draft
    all[3].max_tokens = 0;
    return all;
  };
  const Answers alone = run(make);
  EXPECT_EQ(run(make, {.drafter = same.get(), .draft_tokens = 6}), alone);
  expect_free(*same);
}

// Its cache has no room for all sequences: those without pages get no drafts.
TEST_P(ModelDrafterTest, PreemptionAndScarcePages) {
  const Make make = [&] { return requests(6, 60); };
  start(with_logit_rows());
  const Answers roomy = run(make);
  start(with_logit_rows(160));  // little more than the longest sequence needs, in both models
  const auto same = drafter("llama_gqa");
  EXPECT_EQ(run(make, {.drafter = same.get(), .draft_tokens = 5}), roomy);
  EXPECT_GT(stats_.preemptions, 0u);
  EXPECT_GT(stats_.accepted_tokens, 0u);
  expect_free(*same);
}

TEST_P(ModelDrafterTest, CancelledSequencesAreForgotten) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  start(with_logit_rows());
  const auto same = drafter("llama_gqa");
  {
    Engine engine(*runner_, {.drafter = same.get(), .draft_tokens = 3});
    std::vector<RequestId> ids;
    for (int i = 0; i < 30; ++i) {
      ids.push_back(engine.submit({prompt(1 + random() % 60, i), {.temperature = 0}, 30}));
      for (auto steps = random() % 4; steps-- > 0;) engine.step([](const Emission&) {});
      if (random() % 2 == 0) engine.cancel(ids[random() % ids.size()]);
    }
    for (const RequestId id : ids) engine.cancel(id);
    expect_free(*same);
    for (int i = 0; i < 3; ++i) engine.submit({prompt(20, i), {.temperature = 0}, 30});
    for (int i = 0; i < 5; ++i) engine.step([](const Emission&) {});
    EXPECT_LT(same->runner().state().blocks().free(), same->runner().state().blocks().size());
  }
  expect_free(*same);  // the engine ended with running sequences
}

// A prompt longer than a step of the draft model is computed over several steps.
TEST_P(ModelDrafterTest, LongPrompts) {
  LoadOptions options = with_logit_rows();
  options.rows = 16;
  options.logit_rows = 12;
  start(options);
  const auto same = drafter("llama_gqa");
  const Make make = [&] {
    return std::vector<Request>{{prompt(70, 1), {.temperature = 0}, 40}, {prompt(5, 2), {.temperature = 0}, 60}};
  };
  const Answers alone = run(make);
  EXPECT_EQ(run(make, {.drafter = same.get(), .draft_tokens = 3}), alone);
  EXPECT_EQ(stats_.accepted_tokens, stats_.drafted_tokens);
  EXPECT_GT(stats_.accepted_tokens, 40u);
  expect_free(*same);
}

TEST_P(ModelDrafterTest, ModelsWithRecurrentStateAreRefused) {
  start(with_logit_rows());
  try {
    drafter("mamba2");
    FAIL() << "is accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("recurrent state"), std::string::npos) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, ModelDrafterTest, testing::ValuesIn(tested_places()), name_of);

TEST(ModelDrafter, OtherVocabulariesAreRefused) {
  const auto words = [](const std::string& last) {
    const std::string json =
        R"({"model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "b": 1, ")" + last + R"(": 2}}})";
    return tokenizer_from_json(json, "");
  };
  EXPECT_NO_THROW(ModelDrafter::check_vocabulary(*words("c"), *words("c"), "small"));
  try {
    ModelDrafter::check_vocabulary(*words("c"), *words("d"), "small");
    FAIL() << "is accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Usage);
    EXPECT_NE(std::string(e.what()).find("token 2 is 'd' there and 'c' here"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace millrace
