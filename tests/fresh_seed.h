// Seeds of tests that draw their inputs.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>
#include <string>

namespace millrace {

// Another seed at every call. With MILLRACE_TEST_SEED=N in the environment the n-th call of a test returns the same
// seed in every run, also when only this test runs.
inline uint32_t fresh_seed() {
  const char* fixed = std::getenv("MILLRACE_TEST_SEED");
  if (fixed == nullptr) return std::random_device()();
  static const testing::TestInfo* last_test = nullptr;
  static std::mt19937 seeds;
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  if (test != last_test) {
    const std::string name = test == nullptr ? "" : std::string(test->test_suite_name()) + "." + test->name();
    seeds.seed(static_cast<uint32_t>(std::hash<std::string>()(name + fixed)));
    last_test = test;
  }
  return seeds();
}

}  // namespace millrace
