// Memory plans of models with recurrent state against the context.
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/golden.h"

namespace millrace {
namespace {

constexpr int64_t kLong = 1'000'000;

MemoryPlan plan_of(const char* model, int64_t context) {
  LoadOptions options{.threads = 1, .context = context, .sequences = 2, .rows = 32};
  return Runner(open_weights((goldens_folder() / model).string()), options).memory();
}

int64_t bytes_of(const MemoryPlan& plan, std::string_view what) {
  for (const auto& line : plan.lines) {
    if (line.what.starts_with(what)) return line.bytes;
  }
  return -1;
}

TEST(RecurrentMemory, OfAPureRecurrentModelDoesNotGrowWithTheContext) {
  const MemoryPlan small = plan_of("mamba2", 256), large = plan_of("mamba2", kLong);
  EXPECT_EQ(bytes_of(large, "KV cache"), 0);
  EXPECT_EQ(bytes_of(large, "recurrent state"), bytes_of(small, "recurrent state"));
  EXPECT_LE(large.total() - small.total(), kLong);  // block tables: four bytes per page and sequence
}

TEST(RecurrentMemory, OfAHybridGrowsByItsAttentionLayers) {
  for (const char* model : {"qwen3_next", "granite_hybrid"}) {
    SCOPED_TRACE(model);
    const MemoryPlan small = plan_of(model, 256), large = plan_of(model, kLong);
    EXPECT_EQ(bytes_of(large, "recurrent state"), bytes_of(small, "recurrent state"));
    const int64_t added = bytes_of(large, "KV cache") - bytes_of(small, "KV cache");
    EXPECT_GT(added, 0);
    EXPECT_LE(large.total() - small.total() - added, kLong);
  }
}

// A hybrid may run past its training, a transformer may not.
TEST(RecurrentMemory, HybridsStartWithAMillionPositions) {
  LoadOptions options{.threads = 1, .context = kLong, .rows = 32};
  auto hybrid = load((goldens_folder() / "qwen3_next").string(), options);
  EXPECT_EQ(hybrid->options().context, kLong);
  EXPECT_THROW(load((goldens_folder() / "llama_gqa").string(), options), Error);
}

}  // namespace
}  // namespace millrace
