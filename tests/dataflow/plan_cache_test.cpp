#include "dataflow/plan_cache.h"

#include <gtest/gtest.h>

#include <fstream>

namespace millrace {
namespace {

class PlanCacheTest : public testing::Test {
 protected:
  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / "millrace_plans";
  std::filesystem::path file_ = folder_ / "nested" / "plans.json";
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& text) {
    std::filesystem::create_directories(file_.parent_path());
    std::ofstream(file_) << text;
  }
};

TEST_F(PlanCacheTest, KeepsMeasurementsBestFirst) {
  PlanCache cache;
  cache.put("linear", "p", {{"slow", 9}, {"fast", 3}});
  cache.save(file_);
  const PlanCache read = PlanCache::load(file_);
  const auto* found = read.find("linear", "p");
  ASSERT_NE(found, nullptr);
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].kernel, "fast");
  EXPECT_EQ((*found)[0].us, 3);
  EXPECT_EQ(read.find("attention", "p"), nullptr);
}

TEST_F(PlanCacheTest, DamagedFilesAreEmptyCaches) {
  for (const char* text :
       {"", "{", "[]", "3", "{\"linear p\": 4}", "{\"linear p\": [{\"kernel\": 3, \"us\": 1}]}",
        "{\"linear p\": [{\"kernel\": \"k\", \"us\": -1}, {\"kernel\": \"k\"}, null]}", "\xff\xfe"}) {
    write(text);
    const PlanCache cache = PlanCache::load(file_);
    const auto* found = cache.find("linear", "p");
    EXPECT_TRUE(found == nullptr || found->empty()) << text;
  }
  EXPECT_EQ(PlanCache::load(folder_ / "missing.json").size(), 0u);
}

}  // namespace
}  // namespace millrace
