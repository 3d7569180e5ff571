// Experts that stay in the mapped file because memory is too small for them.
#include "engine/mapped_experts.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "engine/measure/inspection.h"
#include "hardware/storage_rate.h"
#include "models/mixture_files.h"

namespace millrace {
namespace {

TEST(MappedExperts, StayInTheFileOnlyIfThatHelps) {
  EXPECT_EQ(place_experts(100, 80, 100), ExpertsIn::Memory);  // all fits
  EXPECT_EQ(place_experts(100, 80, 99), ExpertsIn::File);
  EXPECT_EQ(place_experts(100, 80, 20), ExpertsIn::File);
  EXPECT_EQ(place_experts(100, 80, 19), ExpertsIn::Memory);  // the rest does not fit either: refused as any model
  EXPECT_EQ(place_experts(100, 0, 99), ExpertsIn::Memory);   // a dense model
}

TEST(MappedExperts, TheRateCountsWhatMemoryCannotKeep) {
  MappedExperts experts{
      .bytes = 8'000'000'000, .bytes_of_a_row = 1'000'000'000, .room = 6'000'000'000, .storage_gbs = 2};
  EXPECT_DOUBLE_EQ(experts.share_from_storage(), 0.25);
  EXPECT_DOUBLE_EQ(experts.storage_us(), 125'000);
  EXPECT_THAT(experts.to_string(), testing::AllOf(testing::HasSubstr("8.0 GB"), testing::HasSubstr("25 %"),
                                                  testing::HasSubstr("at most 8 tokens/s")));
  experts.room = 9'000'000'000;
  EXPECT_EQ(experts.storage_us(), 0);
  EXPECT_THAT(experts.to_string(), testing::Not(testing::HasSubstr("storage")));
  experts.room = -5;
  EXPECT_EQ(experts.share_from_storage(), 1);
  experts.storage_gbs = 0;  // unknown
  EXPECT_EQ(experts.storage_us(), 0);
  EXPECT_THAT(experts.to_string(), testing::Not(testing::HasSubstr("tokens/s")));
  EXPECT_FALSE(MappedExperts().any());
  EXPECT_EQ(MappedExperts().share_from_storage(), 0);
}

TEST(MappedExperts, AFileThatIsAbsentHasNoRate) {
  EXPECT_EQ(measure_storage_gbs("/nonexistent/model.gguf"), std::nullopt);
}

using Rows = std::vector<std::vector<float>>;
const std::vector<int32_t> kTokens{3, 141, 59, 265, 358, 97, 93, 238, 46, 264, 338, 327};

Rows logits(Runner& runner, int32_t chunk) { return all_logits(runner, kTokens, chunk); }

int64_t packed(const Runner& runner) { return runner.memory().lines.at(0).bytes; }

class MappedExpertsTest : public testing::TestWithParam<DType> {};

TEST_P(MappedExpertsTest, GiveTheLogitsOfPackedOnes) {
  MixtureFiles files;
  const std::string path = files.write({[](const std::string&) { return GetParam(); }});
  for (const bool exact : {true, false}) {
    LoadOptions options{.threads = 2, .exact = exact, .context = 64, .rows = 16, .logit_rows = 16, .block_size = 16};
    const auto whole = load(path, options);
    EXPECT_FALSE(whole->rank().mapped_experts().any());
    options.cpu_memory = whole->memory().total() - 1;
    const auto mapped = load(path, options);
    const MappedExperts& experts = mapped->rank().mapped_experts();
    const int64_t in_file = 2 * 8 * 3 * static_cast<int64_t>(row_bytes(GetParam(), 256 * 256));
    EXPECT_EQ(experts.bytes, in_file);
    EXPECT_EQ(experts.bytes_of_a_row, in_file / 4);  // two of eight
    // No copy of the experts is allocated: the packed weights are those of a model without experts.
    const int64_t others = packed(*whole) + whole->memory().lines.at(1).bytes;
    EXPECT_LE(packed(*mapped) + mapped->memory().lines.at(1).bytes, others - in_file);
    EXPECT_LE(mapped->memory().total(), options.cpu_memory);
    const Rows expected = logits(*whole, 12);
    // Fast kernels round differently, and a row whose router has a near tie then chooses other experts.
    for (const int32_t chunk : {12, 5, 1})
      EXPECT_LT(rms_distance(logits(*mapped, chunk), expected), exact ? 1e-5 : 0.6);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, MappedExpertsTest,
                         testing::Values(DType::F32, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q5_1, DType::Q4_K,
                                         DType::Q6_K, DType::MXFP4),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(MappedExperts, ARestThatDoesNotFitIsRefused) {
  MixtureFiles files;
  const std::string path = files.write({[](const std::string&) { return DType::Q4_0; }});
  Runner runner(open_weights(path), {.threads = 1, .context = 64, .cpu_memory = 1000});
  EXPECT_THROW(runner.load(), Error);
}

TEST(MappedExperts, BesideADeviceTheyStayInTheFileToo) {
  MixtureFiles files;
  const std::string path = files.write({[](const std::string&) { return DType::Q4_0; }});
  LoadOptions options{.threads = 2, .exact = true, .context = 64, .rows = 16, .logit_rows = 16, .block_size = 16};
  const auto whole = load(path, options);
  options.cpu_as_card = true;
  options.gpu_memory = whole->memory().total() - 100'000;
  options.stream_rows = int64_t{1} << 40;  // without copies for the device
  const auto beside = load(path, options);
  ASSERT_TRUE(beside->rank().uses_host());
  EXPECT_FALSE(beside->rank().mapped_experts().any());
  options.cpu_memory = beside->rank().host_share().memory.total() - 1;
  const auto mapped = load(path, options);
  EXPECT_TRUE(mapped->rank().mapped_experts().any());
  EXPECT_LT(mapped->rank().host_share().memory.total(), options.cpu_memory);
  EXPECT_LT(rms_distance(logits(*mapped, 12), logits(*whole, 12)), 1e-5);
}

TEST(MappedExperts, InspectSaysSo) {
  MixtureFiles files;
  const std::string path = files.write({[](const std::string&) { return DType::Q4_0; }});
  LoadOptions options{.threads = 1, .context = 64};
  const auto whole = inspect(open_weights(path), options);
  EXPECT_FALSE(whole.mapped.any());
  options.cpu_memory = whole.memory.total() - 1;
  const auto mapped = inspect(open_weights(path), options);
  EXPECT_TRUE(mapped.mapped.any());
  EXPECT_GT(mapped.tokens_per_second, 0);
  EXPECT_EQ(mapped.problem, "");
}

}  // namespace
}  // namespace millrace
