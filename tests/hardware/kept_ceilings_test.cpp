#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "fake_root.h"
#include "fresh_seed.h"
#include "hardware/describe.h"
#include "hardware/this_machine.h"

namespace millrace {
namespace {

Ceilings some_ceilings() {
  Ceilings c;
  c.measured = true;
  c.read_gbs = 47.125;
  c.cache_gbs = 116.5;
  c.int8_gops = 1328;
  c.bf16_gflops = 656;
  c.f16_gflops = 332;
  c.f32_gflops = 166;
  c.region_us = 0.625;
  c.cpu_share = 0.875;
  c.read_by_threads = {{1, 26.5}, {2, 47.125}};
  return c;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(KeptCeilings, ComeBackAsTheyWere) {
  FakeRoot root;
  const auto file = root.path() / "hardware" / "id.json";
  save_ceilings(file, some_ceilings());
  const auto kept = load_ceilings(file);
  ASSERT_TRUE(kept);
  EXPECT_EQ(describe(*kept), describe(some_ceilings()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file.parent_path()), {}), 1)
      << "a temporary file was left";
}

TEST(KeptCeilings, NothingWhereThereIsNoFile) {
  FakeRoot root;
  EXPECT_FALSE(load_ceilings(root.path() / "none.json"));
  EXPECT_FALSE(load_ceilings(root.path()));
}

TEST(KeptCeilings, ADamagedFileIsNothing) {
  FakeRoot root;
  const auto file = root.path() / "id.json";
  save_ceilings(file, some_ceilings());
  const std::string good = text_of(file);
  for (size_t length = 0; length + 2 < good.size(); length += 7) {  // without the last brace it is not JSON
    root.file("id.json", good.substr(0, length));
    ASSERT_FALSE(load_ceilings(file)) << length;
  }
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    std::string bad = good;
    bad[random() % bad.size()] = static_cast<char>(random());
    root.file("id.json", bad);
    load_ceilings(file);  // may still be valid; must not throw
  }
}

TEST(KeptCeilings, FieldsAreChecked) {
  const auto good = describe(some_ceilings());
  ASSERT_TRUE(parse_ceilings(good));
  for (const auto& [name, value] : good.items()) {
    auto missing = good, wrong = good, negative = good;
    missing.erase(name);
    wrong[name] = "fast";
    negative[name] = -5;
    EXPECT_FALSE(parse_ceilings(missing)) << name;
    EXPECT_FALSE(parse_ceilings(wrong)) << name;
    EXPECT_FALSE(parse_ceilings(negative)) << name;
  }
}

TEST(KeptCeilings, AnotherVersionIsMeasuredAgain) {
  FakeRoot root;
  root.file("id.json", nlohmann::json{{"version", 0}, {"ceilings", describe(some_ceilings())}}.dump());
  EXPECT_FALSE(load_ceilings(root.path() / "id.json"));
}

TEST(KeptCeilings, SavingWhereNothingCanBeWrittenIsAnError) {
  FakeRoot root;
  root.file("plain", "");
  EXPECT_THROW(save_ceilings(root.path() / "plain" / "id.json", some_ceilings()), Error);
}

TEST(ThisMachine, WithoutMeasuringNeverTakesLong) {
  const auto start = std::chrono::steady_clock::now();
  const Hardware hardware = this_machine(1, /*measure=*/false);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  EXPECT_EQ(hardware.threads, 1);
  EXPECT_GT(hardware.ceilings.read_gbs, 0);
}

}  // namespace
}  // namespace millrace
