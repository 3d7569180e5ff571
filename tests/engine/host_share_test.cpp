// Weights that stay in host memory. A CPU rank with limited memory stands for the GPU; the host's part is computed by a
// second set of ops.
#include <gmock/gmock.h>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/measure/explain.h"
#include "engine/measure/inspection.h"
#include "engine/placement.h"
#include "engine/step_cost.h"
#include "models/mixture_files.h"

namespace millrace {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

constexpr PlacementRates kRates{.device_gbs = 1000, .host_gbs = 50, .link = {.gbs = 25, .hand_over_us = 20}};

Weights::Unit matrix(size_t bytes) { return {bytes, static_cast<double>(bytes), false}; }
Weights::Unit experts(size_t bytes) { return {bytes, static_cast<double>(bytes) / 8, true, 16}; }

TEST(Placement, ExpertsGoFirstAndFromTheEnd) {
  const std::vector<Weights::Unit> units{matrix(1 << 20), experts(8 << 20), matrix(1 << 20), experts(8 << 20)};
  EXPECT_THAT(choose_host_units(units, 8 << 20, kRates), UnorderedElementsAre(Pair(3, 16)));
  EXPECT_THAT(choose_host_units(units, 16 << 20, kRates), UnorderedElementsAre(Pair(1, 16), Pair(3, 16)));
  EXPECT_THAT(choose_host_units(units, 17 << 20, kRates), UnorderedElementsAre(Pair(1, 16), Pair(2, 1), Pair(3, 16)));
  EXPECT_THAT(choose_host_units(units, size_t{1} << 40, kRates),
              UnorderedElementsAre(Pair(0, 1), Pair(1, 16), Pair(2, 1), Pair(3, 16)));
}

TEST(Placement, MovesNoMoreThanNeeded) {
  // Per byte the large matrix costs less, so it goes first; then it alone is enough.
  const std::vector<Weights::Unit> units{matrix(64 << 20), matrix(1 << 10), matrix(0)};
  EXPECT_THAT(choose_host_units(units, 1 << 20, kRates), UnorderedElementsAre(Pair(0, 1)));
  EXPECT_THAT(choose_host_units(units, 0, kRates), testing::IsEmpty());
  EXPECT_THAT(choose_host_units(units, size_t{1} << 40, kRates), UnorderedElementsAre(Pair(0, 1), Pair(1, 1)));
  // The experts free too little; with the matrix they are no longer needed.
  EXPECT_THAT(choose_host_units({experts(1 << 10), matrix(1 << 20)}, 1 << 20, kRates),
              UnorderedElementsAre(Pair(1, 1)));
  // Experts stay one by one.
  const std::vector<Weights::Unit> layers{experts(16 << 20), experts(16 << 20)};
  EXPECT_THAT(choose_host_units(layers, 1, kRates), UnorderedElementsAre(Pair(1, 1)));
  EXPECT_THAT(choose_host_units(layers, (18 << 20) + 1, kRates), UnorderedElementsAre(Pair(0, 3), Pair(1, 16)));
}

TEST(Placement, LayersAreDividedWhereTheDeviceIsSlow) {
  const std::vector<Weights::Unit> layers{experts(64 << 20), matrix(1 << 20), experts(64 << 20)};
  const size_t half = 64 << 20;
  // A hand-over of 20 us, and the device reads a layer's 8 MB in 8 us, or in 80 us.
  PlacementRates rates = kRates;
  EXPECT_THAT(choose_host_units(layers, half, rates), UnorderedElementsAre(Pair(2, 16)));
  rates.device_gbs = 100;
  EXPECT_THAT(choose_host_units(layers, half, rates), UnorderedElementsAre(Pair(0, 8), Pair(2, 8)));
  EXPECT_THAT(choose_host_units(layers, half, rates, false), UnorderedElementsAre(Pair(2, 16)));
  EXPECT_THAT(choose_host_units(layers, half, kRates, true), UnorderedElementsAre(Pair(0, 8), Pair(2, 8)));
  EXPECT_THAT(choose_host_units(layers, 1, kRates, true), UnorderedElementsAre(Pair(2, 1)));
  // All experts are too few.
  EXPECT_THAT(choose_host_units(layers, (128 << 20) + 1, rates, true),
              UnorderedElementsAre(Pair(0, 16), Pair(1, 1), Pair(2, 16)));
}

TEST(Placement, PenaltyIsBytesOverTheDifferenceOfRates) {
  const Weights::Unit unit = matrix(100'000'000);
  EXPECT_NEAR(host_penalty_us(unit, 1, kRates), 20 + 100e6 / 50e3 - 100e6 / 1000e3, 1e-6);
  // A quarter of the experts on the host: the device computes the others meanwhile.
  EXPECT_NEAR(host_penalty_us(experts(80'000'000), 4, kRates), 20 + 2.5e6 / 50e3 - 10e6 / 1000e3, 1e-6);
  PlacementRates slow = kRates;
  slow.device_gbs = 10;
  EXPECT_NEAR(host_penalty_us(experts(80'000'000), 4, slow), -2.5e6 / 10e3, 1e-6);
  const HostShare share = describe_share({unit, experts(80'000'000)}, {{1, 4}}, kRates);
  EXPECT_EQ(share.expert_layers, 1);
  EXPECT_EQ(share.experts, 4);
  EXPECT_EQ(share.linears, 0);
  EXPECT_EQ(share.bytes_of_a_row, 2'500'000);
  EXPECT_THAT(share.to_string(), testing::HasSubstr("4 of 16 experts, in 1 of 1 layers (20.0 MB)"));
}

LoadOptions options_for(const Expected& expected) {
  const auto length = static_cast<int64_t>(expected.tokens.size());
  return {.threads = 2, .exact = true, .context = length, .rows = length, .logit_rows = length, .block_size = 16};
}

// The same options with so little memory that about this part of the weights must move.
LoadOptions limited(const std::filesystem::path& model, LoadOptions options, double part) {
  const Runner whole(open_weights(model.string()), options);
  int64_t weights = 0;
  for (const auto& line : whole.memory().lines)
    weights += line.what.find("weights") != std::string::npos ? line.bytes : 0;
  options.cpu_as_card = true;
  options.gpu_memory = whole.memory().total() - static_cast<int64_t>(part * static_cast<double>(weights));
  return options;
}

using Rows = std::vector<std::vector<float>>;

void expect_close(const Rows& actual, const Rows& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  float largest = 0;
  for (const auto& row : expected) {
    for (const float value : row) largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    for (size_t j = 0; j < actual[i].size(); ++j) ASSERT_NEAR(actual[i][j], expected[i][j], 1e-5 * largest) << i;
  }
}

constexpr int64_t kNever = int64_t{1} << 40;
struct Ways {
  double part;
  bool split;
  int64_t stream_rows;
};

class HostShareTest : public testing::TestWithParam<const char*> {};

TEST_P(HostShareTest, GivesTheLogitsOfTheWholeDevice) {
  const std::filesystem::path folder = goldens_folder() / GetParam();
  const Expected expected = read_expected({GetParam(), folder});
  const LoadOptions options = options_for(expected);
  const auto whole = load(folder.string(), options);
  EXPECT_FALSE(whole->rank().uses_host());
  const auto length = static_cast<int32_t>(expected.tokens.size());
  const Rows logits = all_logits(*whole, expected.tokens, length);
  for (const Ways ways : {Ways{0.2, false, kNever}, Ways{0.6, false, kNever}, Ways{0.2, true, kNever},
                          Ways{0.6, true, kNever}, Ways{0.2, true, 5}, Ways{0.6, false, 1}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", ways.part, ways.split, ways.stream_rows));
    LoadOptions few = limited(folder, options, ways.part);
    few.split_experts = ways.split;
    few.stream_rows = ways.stream_rows;
    const auto split = load(folder.string(), few);
    ASSERT_TRUE(split->rank().uses_host());
    EXPECT_LE(split->memory().total(), split->options().gpu_memory);
    const HostShare& share = split->rank().host_share();
    if (share.linears == 0 && ways.split) {
      EXPECT_EQ(share.expert_layers, share.all_expert_layers);
    }
    EXPECT_THAT(share.stream_rows, testing::AnyOf(0, ways.stream_rows));  // 0: the stages do not fit, or no experts
    for (const int32_t chunk : {length, 7, 1}) expect_close(all_logits(*split, expected.tokens, chunk), logits);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HostShareTest,
                         testing::Values("qwen3_moe", "glm4_moe", "gpt_oss", "phimoe", "llama_gqa", "opt", "gemma3",
                                         "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

// Routers that send all tokens to experts on one side. Four to six of eight experts are on the host.
TEST(HostShare, AllTokensMayChooseOneSide) {
  const std::vector<int32_t> tokens{3, 141, 59, 265, 358, 97, 93, 238, 46, 264, 338, 327};
  const auto on_device = [](int64_t, int64_t) { return 0.0f; };  // of equal scores the first two are chosen
  const auto on_host = [](int64_t expert, int64_t column) {      // one of each pair has a positive score
    if (expert < 4) return 0.0f;
    const float scale = column % 2 == expert / 2 % 2 ? 1.0f : 0.0f;
    return expert % 2 == 0 ? scale : -scale;
  };
  MixtureFiles files;
  using Router = std::function<float(int64_t, int64_t)>;
  for (const Router& weights : {Router(on_device), Router(on_host)}) {
    files.set_routers(weights);
    const std::string path = files.write({[](const std::string&) { return DType::F32; }});
    LoadOptions options{.threads = 2, .exact = true, .context = 64, .rows = 16, .logit_rows = 16, .block_size = 16};
    const Rows logits = all_logits(*load(path, options), tokens, 12);
    options = limited(path, options, 0.5);
    options.split_experts = true;
    for (const int64_t stream_rows : {kNever, int64_t{8}}) {
      options.stream_rows = stream_rows;
      const auto split = load(path, options);
      const HostShare& share = split->rank().host_share();
      EXPECT_EQ(share.stream_rows, stream_rows == kNever ? 0 : stream_rows);
      EXPECT_GE(share.experts, 8);   // four of each layer
      EXPECT_LE(share.experts, 12);  // six
      for (const int32_t chunk : {12, 3, 1}) expect_close(all_logits(*split, tokens, chunk), logits);
    }
  }
}

TEST(HostShare, RequestsTogetherGiveTheTokensOfTheWholeDevice) {
  const std::filesystem::path folder = goldens_folder() / "qwen3_moe";
  LoadOptions options{.threads = 2, .exact = true, .context = 128, .sequences = 3, .rows = 24, .block_size = 16};
  const auto tokens = [&](const LoadOptions& load_options) {
    const auto runner = load(folder.string(), load_options);
    Engine engine(*runner);
    std::map<RequestId, std::vector<int32_t>> all;
    std::vector<std::vector<int32_t>> kept;
    std::vector<RequestId> ids;
    for (int i = 0; i < 5; ++i) {
      Request request{{}, {.temperature = 0}, 6 + 2 * i};
      for (int t = 0; t < 3 + 11 * i; ++t) request.prompt.push_back((t * 7 + i) % 70);
      ids.push_back(engine.submit(request));
    }
    const RequestId doomed = engine.submit({{4, 5, 6}, {}, 50});
    for (int step = 0;; ++step) {
      if (step == 6) engine.cancel(doomed);
      if (!engine.step([&](const Emission& e) { all[e.id].push_back(e.token); })) break;
    }
    for (const RequestId id : ids) kept.push_back(all[id]);
    EXPECT_EQ(engine.running() + engine.waiting(), 0u);
    return kept;
  };
  const auto whole = tokens(options);
  options = limited(folder, options, 0.5);
  for (const bool split : {false, true}) {
    options.split_experts = split;
    options.stream_rows = 9;  // prompts stream, decodes do not
    EXPECT_EQ(tokens(options), whole);
  }
}

TEST(HostShare, BatchInvariantPassesKeepTheirBits) {
  const std::filesystem::path folder = goldens_folder() / "glm4_moe";
  const Expected expected = read_expected({"glm4_moe", folder});
  LoadOptions options = options_for(expected);
  options.batch_invariant = true;
  const auto split = load(folder.string(), limited(folder, options, 0.6));
  ASSERT_TRUE(split->rank().uses_host());
  const Rows whole = all_logits(*split, expected.tokens, static_cast<int32_t>(expected.tokens.size()));
  EXPECT_EQ(all_logits(*split, expected.tokens, 1), whole);
  EXPECT_EQ(all_logits(*split, expected.tokens, 7), whole);
}

TEST(HostShare, AModelThatFitsStaysOnTheDevice) {
  const std::filesystem::path folder = goldens_folder() / "qwen3_moe";
  LoadOptions options = limited(folder, {.threads = 1, .context = 64}, 0);
  Runner runner(open_weights(folder.string()), options);
  EXPECT_FALSE(runner.rank().uses_host());
  EXPECT_EQ(runner.ops().host(), nullptr);
  options.gpu_memory -= 1;  // one byte less moves the experts of one layer
  const Runner split(open_weights(folder.string()), options);
  EXPECT_EQ(split.rank().host_share().expert_layers, 1);
  EXPECT_EQ(split.rank().host_share().linears, 0);
  // Without a device the limit has no meaning.
  options.cpu_as_card = false;
  EXPECT_FALSE(Runner(open_weights(folder.string()), options).rank().uses_host());
}

TEST(HostShare, StateAndBuffersMustFit) {
  const std::filesystem::path folder = goldens_folder() / "qwen3_moe";
  Runner runner(open_weights(folder.string()), {.threads = 1, .context = 64, .gpu_memory = 1000, .cpu_as_card = true});
  try {
    runner.load();
    FAIL() << "loaded";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::OutOfMemory);
  }
}

TEST(HostShare, SizesAreReadAndChecked) {
  EXPECT_EQ(parse_bytes("1000"), 1000);
  EXPECT_EQ(parse_bytes("1.5GB"), 1'500'000'000);
  EXPECT_EQ(parse_bytes("2 GiB"), int64_t{2} << 30);
  EXPECT_EQ(parse_bytes("8m"), 8'000'000);
  for (const char* wrong : {"", "GB", "-1", "nan", "1XB", "1iB", "1e30", "12 GBs"})
    EXPECT_EQ(parse_bytes(wrong), std::nullopt) << wrong;
}

TEST(HostShare, ASmallDeviceGetsAUsualContext) {
  const std::filesystem::path folder = goldens_folder() / "qwen3_moe";
  LoadOptions options = limited(folder, {.threads = 1}, 0.3);
  options.kv_tokens = LoadOptions::kWhatFits;
  const Runner runner(open_weights(folder.string()), options);
  EXPECT_TRUE(runner.rank().uses_host());
  EXPECT_EQ(runner.options().context, runner.model().config().context);  // at most 4096
}

TEST(HostShare, IsShownAndPredicted) {
  const std::filesystem::path folder = goldens_folder() / "qwen3_moe";
  const LoadOptions options = limited(folder, {.threads = 1, .context = 64}, 0.6);
  const Inspection i = inspect(open_weights(folder.string()), options);
  EXPECT_EQ(i.problem, "");
  EXPECT_GT(i.host.expert_layers, 0);
  EXPECT_GT(i.host.memory.total(), i.host.bytes_of_a_row);
  const Inspection whole = inspect(open_weights(folder.string()), {.threads = 1, .context = 64});
  EXPECT_EQ(i.active_parameters, whole.active_parameters);
  EXPECT_GT(i.first_token_ms, whole.first_token_ms);
  EXPECT_LT(i.tokens_per_second, whole.tokens_per_second);

  Runner runner(open_weights(folder.string()), options);
  const auto calls = explain(runner, {1}, 16);
  const auto on_host = [](const OpCall& call) { return call.on_host; };
  EXPECT_TRUE(std::any_of(calls.begin(), calls.end(), on_host));
  EXPECT_FALSE(std::all_of(calls.begin(), calls.end(), on_host));
  const StepCost cost = step_cost(runner, 1, 1, 16, 1);
  const auto is_hand_over = [](const OpTimes::Entry& entry) { return entry.op == "hand-over"; };
  EXPECT_TRUE(std::any_of(cost.expected.entries.begin(), cost.expected.entries.end(), is_hand_over));
  EXPECT_GT(cost.expected_us(), cost.roof_us);
}

}  // namespace
}  // namespace millrace
