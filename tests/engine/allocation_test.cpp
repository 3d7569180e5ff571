// A step allocates nothing once the model is loaded and its requests are prepared.
#include "count_allocations.h"
#include "engine/drafts.h"
#include "engine/engine.h"
#include "engine/head_drafter.h"
#include "engine/lookup_drafter.h"
#include "engine/model_drafter.h"
#include "models/golden.h"

namespace millrace {
namespace {

TEST(Allocation, StepsOfAnySizeAllocateNothing) {
  for (const bool exact : {true, false}) {
    auto runner = load(
        (goldens_folder() / "gemma2").string(),
        {.threads = 2, .exact = exact, .context = 128, .sequences = 3, .rows = 64, .logit_rows = 3, .block_size = 16});
    std::vector<BlockTable> tables;
    for (int i = 0; i < 3; ++i) {
      tables.push_back(runner->state().new_table(128));
      ASSERT_TRUE(tables.back().reserve(128));
    }
    const std::vector<int32_t> tokens(64, 5);
    StepBatch step(64, 3, 3);
    const int64_t before = allocations();
    for (const int32_t rows : {1, 2, 7, 20}) {
      for (const int32_t past : {0, 17, 60}) {
        step.clear();
        for (auto& table : tables)
          step.add(std::span(tokens).first(rows), past, past + rows, table.pages(), StepBatch::Logits::Last);
        runner->forward(step.batch());
      }
    }
    EXPECT_EQ(allocations(), before) << (exact ? "exact" : "fast");
  }
}

struct Variant {
  bool exact = false, device_draws = false;
  std::map<std::string, std::string> forced;  // an op with a forced kernel is never fused
};

class StepAllocationTest : public testing::TestWithParam<Golden> {
 protected:
  std::unique_ptr<Runner> load_variant(const Variant& variant) const {
    LoadOptions options{.threads = 2, .forced = variant.forced, .exact = variant.exact, .context = 64, .sequences = 4};
    options.rows = 32;
    options.logit_rows = 24;
    options.kv_tokens = 1024;  // a page per sequence, and one more for each
    options.block_size = 64;   // large pages, because the prefix tree allocates a node for each full page
    options.device_draws = variant.device_draws;
    return load(GetParam().folder.string(), options);
  }

  // Prompts exceed the original context of longrope models, because a sequence that outgrows it goes back into the
  // queue. With device_draws all requests are greedy, because the CPU's reference kernel for sampling allocates.
  static std::vector<Request> requests(const Variant& variant) {
    const std::vector<SamplingParams> ways{
        {.temperature = 0},
        {.temperature = 0.9f, .top_p = 0.9f, .seed = 2, .logprobs = 3},
        {.temperature = 1, .top_k = 10, .frequency_penalty = 0.5f, .seed = 3},
        {.temperature = 1, .seed = 4},
    };
    std::vector<Request> all;
    for (const SamplingParams& way : ways) {
      const auto i = static_cast<int32_t>(all.size());
      std::vector<int32_t> prompt(18);
      for (int32_t t = 0; t < 18; ++t) prompt[static_cast<size_t>(t)] = (i * 17 + t * 7) % 60;
      all.push_back({prompt, variant.device_draws ? ways[0] : way, 40});
    }
    if (variant.device_draws) return all;
    all[3].min_tokens = 60;
    all[3].end_tokens = {7};
    return all;
  }

  // The texts without drafts.
  static std::vector<std::vector<int32_t>> texts(Runner& runner, const Variant& variant) {
    Engine engine(runner);
    std::map<RequestId, std::vector<int32_t>> heard;
    for (const Request& r : requests(variant)) heard[engine.submit(r)] = r.prompt;
    while (engine.step([&](const Emission& e) { heard.at(e.id).push_back(e.token); })) {
    }
    std::vector<std::vector<int32_t>> all;
    for (const auto& [id, text] : heard) all.push_back(text);
    return all;
  }

  static int64_t steps_until_end(Engine& engine, int least) {
    const int64_t before = allocations();
    int steps = 0;
    while (engine.step([](const Emission&) {})) ++steps;
    EXPECT_GT(steps, least);
    return allocations() - before;
  }
};

TEST_P(StepAllocationTest, DecodesAllocateNothing) {
  const Variant variants[] = {{}, {.exact = true}, {.device_draws = true}, {.forced = {{"norm", "reference"}}}};
  for (const Variant& variant : variants) {
    auto runner = load_variant(variant);
    const int64_t long_from = runner->model().long_from();
    if (long_from > 18 && long_from < 58) GTEST_SKIP() << "sequences outgrow the original context and start again";
    const auto known = texts(*runner, variant);
    for (const bool drafts : {false, true}) {
      KnownTexts drafter(KnownTexts::Kind::HalfRight, static_cast<int32_t>(runner->model().config().vocab));
      for (const auto& text : known) drafter.know(text);
      EngineOptions options{.tpot_target_ms = 1e6};  // measured times must not decide which step computes which prompt
      if (drafts) options.drafter = &drafter;
      Engine engine(*runner, options);
      for (const Request& r : requests(variant)) engine.submit(r);
      for (int i = 0; i < 4; ++i) engine.step([](const Emission&) {});  // computes the prompts
      ASSERT_EQ(engine.waiting(), 0u);
      const int64_t before = allocations();
      for (int i = 0; i < 6; ++i) engine.step([](const Emission&) {});
      EXPECT_EQ(allocations(), before) << "exact " << variant.exact << ", device draws " << variant.device_draws
                                       << ", forced " << variant.forced.size() << ", drafts " << drafts;
      ASSERT_EQ(engine.running(), 4u);
      EngineStats stats;
      engine.fill(stats);
      EXPECT_EQ(stats.accepted_tokens > 0, drafts);
    }
  }
}

// A whole request: admission, prompt, first tokens of its choices, their ends. Without prefix tree, which allocates
// nodes for prompts and full pages.
TEST_P(StepAllocationTest, ChoicesAllocateNothing) {
  auto runner = load_variant({});
  Engine engine(*runner, {.prefix_cache = false});
  engine.prepare_pace();
  for (const bool first : {true, false}) {  // the first request grows lists to their final length
    Request request{{1, 2, 3}, {.temperature = 1, .frequency_penalty = 0.3f, .seed = 4, .logprobs = 2}, 12};
    request.choices = 4;
    request.sampling.top_k = 12;
    engine.submit(request);
    const int64_t allocated = steps_until_end(engine, 10);
    if (!first) {
      EXPECT_EQ(allocated, 0);
    }
  }
}

// Drafters, and the plan of their lengths.
TEST(Allocation, DraftersAllocateNothing) {
  LoadOptions options{
      .threads = 2, .exact = true, .context = 128, .sequences = 3, .branches = 9, .rows = 80, .logit_rows = 80};
  const std::string model = (goldens_folder() / "llama_gqa").string();
  auto runner = load(model, options);
  auto draft = ModelDrafter::plan(*runner, open_weights(model));
  draft->load();
  ModelDrafter same(std::move(draft));
  LookupDrafter lookup;
  const std::shared_ptr<const WeightSource> source =
      open_weights((std::filesystem::path(MILLRACE_TEST_DATA) / "heads" / "right_mtp").string());
  options.heads = source;
  Runner target(source, options);
  target.load();
  auto planned = HeadDrafter::plan(target, source);
  planned->load();
  HeadDrafter heads(target, std::move(planned));
  struct Case {
    Runner* runner;
    Drafter* drafter;
  };
  for (const auto& [main, drafter] : {Case{runner.get(), &same}, Case{runner.get(), &lookup}, Case{&target, &heads}}) {
    for (const bool by_cost : {false, true}) {
      Engine engine(*main, {.drafter = drafter, .draft_width = 1 + kMostBranches, .drafts_by_cost = by_cost});
      engine.prepare_pace();
      for (int32_t i = 0; i < 3; ++i) engine.submit({{1, 2, 3, 1, 2, 3, 1, 2, 4 + i}, {.temperature = 0}, 50});
      for (int i = 0; i < 3; ++i) engine.step([](const Emission&) {});  // computes the prompts
      const int64_t before = allocations();
      for (int i = 0; i < 6; ++i) engine.step([](const Emission&) {});
      EXPECT_EQ(allocations(), before) << "model " << (drafter == &same) << ", heads " << (drafter == &heads)
                                       << ", by cost " << by_cost;
      ASSERT_EQ(engine.running(), 3u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, StepAllocationTest, testing::ValuesIn(all_goldens()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace millrace
