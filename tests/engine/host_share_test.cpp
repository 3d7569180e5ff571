// Weights that stay in host memory. A CPU rank with limited memory stands for the GPU; the host's part is computed by a
// second set of ops.
#include <gmock/gmock.h>

#include "base/error.h"
#include "engine/measure/explain.h"
#include "engine/measure/inspection.h"
#include "engine/placement.h"
#include "engine/step_cost.h"
#include "models/golden.h"

namespace millrace {
namespace {

using testing::UnorderedElementsAre;

constexpr PlacementRates kRates{.device_gbs = 1000, .host_gbs = 50, .link_gbs = 25};

Weights::Unit matrix(size_t bytes) { return {bytes, static_cast<double>(bytes), false}; }
Weights::Unit experts(size_t bytes) { return {bytes, static_cast<double>(bytes) / 8, true}; }

TEST(Placement, ExpertsGoFirstAndFromTheEnd) {
  const std::vector<Weights::Unit> units{matrix(1 << 20), experts(8 << 20), matrix(1 << 20), experts(8 << 20)};
  EXPECT_THAT(choose_host_units(units, 1, kRates), UnorderedElementsAre(3));
  EXPECT_THAT(choose_host_units(units, 9 << 20, kRates), UnorderedElementsAre(1, 3));
  EXPECT_THAT(choose_host_units(units, 17 << 20, kRates), UnorderedElementsAre(1, 2, 3));
  EXPECT_THAT(choose_host_units(units, size_t{1} << 40, kRates), UnorderedElementsAre(0, 1, 2, 3));
}

TEST(Placement, MovesNoMoreThanNeeded) {
  // Per byte the large matrix costs less, so it goes first; then it alone is enough.
  const std::vector<Weights::Unit> units{matrix(64 << 20), matrix(1 << 10), matrix(0)};
  EXPECT_THAT(choose_host_units(units, 1 << 20, kRates), UnorderedElementsAre(0));
  EXPECT_THAT(choose_host_units(units, 0, kRates), testing::IsEmpty());
  EXPECT_THAT(choose_host_units(units, size_t{1} << 40, kRates), UnorderedElementsAre(0, 1));
  // The experts free too little; with the matrix they are no longer needed.
  EXPECT_THAT(choose_host_units({experts(1 << 10), matrix(1 << 20)}, 1 << 20, kRates), UnorderedElementsAre(1));
}

TEST(Placement, PenaltyIsBytesOverTheDifferenceOfRates) {
  const Weights::Unit unit = matrix(100'000'000);
  EXPECT_NEAR(host_penalty_us(unit, kRates), 20 + 100e6 / 50e3 - 100e6 / 1000e3, 1e-6);
  const HostShare share = describe_share({unit, experts(80'000'000)}, {1}, kRates);
  EXPECT_EQ(share.expert_layers, 1);
  EXPECT_EQ(share.linears, 0);
  EXPECT_EQ(share.bytes_of_a_row, 10'000'000);
  EXPECT_THAT(share.to_string(), testing::HasSubstr("experts of 1 of 1 layers (80.0 MB)"));
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

class HostShareTest : public testing::TestWithParam<const char*> {};

TEST_P(HostShareTest, GivesTheLogitsOfTheWholeDevice) {
  const std::filesystem::path folder = goldens_folder() / GetParam();
  const Expected expected = read_expected({GetParam(), folder});
  const LoadOptions options = options_for(expected);
  const auto whole = load(folder.string(), options);
  EXPECT_FALSE(whole->rank().uses_host());
  const auto length = static_cast<int32_t>(expected.tokens.size());
  const Rows logits = all_logits(*whole, expected.tokens, length);
  for (const double part : {0.2, 0.6}) {
    SCOPED_TRACE(part);
    const auto split = load(folder.string(), limited(folder, options, part));
    ASSERT_TRUE(split->rank().uses_host());
    EXPECT_LE(split->memory().total(), split->options().gpu_memory);
    for (const int32_t chunk : {length, 7, 1}) expect_close(all_logits(*split, expected.tokens, chunk), logits);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HostShareTest,
                         testing::Values("qwen3_moe", "glm4_moe", "gpt_oss", "phimoe", "llama_gqa", "opt", "gemma3",
                                         "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

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
