#include "hardware/ceilings.h"

#include <gtest/gtest.h>

#include <limits>

#include "hardware/detect.h"
#include "hardware/read_rate.h"

namespace millrace {
namespace {

// What holds on any machine, however busy: not that the rates are plausible.
TEST(Ceilings, OfAllKindsAreMeasured) {
  const Hardware hardware = detect_cpu();
  ThreadPool pool(hardware.threads);
  const Ceilings c = measure_ceilings(hardware, pool);
  EXPECT_TRUE(c.measured);
  EXPECT_GT(c.read_gbs, 0);
  EXPECT_GE(c.cache_gbs, c.read_gbs);
  EXPECT_GT(c.f32_gflops, 0);
  EXPECT_GE(c.f16_gflops, c.f32_gflops);
  EXPECT_GE(c.bf16_gflops, c.f32_gflops);
  EXPECT_GE(c.region_us, 0);
  ASSERT_FALSE(c.read_by_threads.empty());
  EXPECT_EQ(c.read_by_threads.front().threads, 1);
  EXPECT_EQ(c.read_by_threads.back().threads, hardware.threads);
  EXPECT_EQ(c.read_by_threads.back().gbs, c.read_gbs);
}

TEST(Ceilings, MoreThreadsThanTheMachineRunsAtOnceAddNothing) {
  Hardware hardware = detect_cpu(4);
  hardware.cores = hardware.threads_per_core = 1;
  ThreadPool pool(4);
  const Ceilings c = measure_ceilings(hardware, pool);
  ASSERT_EQ(c.read_by_threads.size(), 1u);
  EXPECT_EQ(c.read_by_threads.back().threads, 1);
}

TEST(Ceilings, OfEveryLevelAreMeasured) {
  for (const IsaLevel& level : isa_levels()) {
    const Hardware hardware = detect_cpu(1, level.allowed);
    ThreadPool pool(1);
    EXPECT_GT(measure_ceilings(hardware, pool).int8_gops, 0) << level.name;
  }
}

TEST(Ceilings, ThreadCountsEndWithAll) {
  EXPECT_EQ(thread_counts(1), (std::vector{1}));
  EXPECT_EQ(thread_counts(3), (std::vector{1, 2, 3}));
  EXPECT_EQ(thread_counts(48), (std::vector{1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 48}));
}

TEST(Ceilings, NonsenseIsNotPlausible) {
  Ceilings good;
  EXPECT_TRUE(plausible(good));
  const double bad[] = {-1, 0, 1e12, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()};
  for (double value : bad) {
    for (double Ceilings::*field : {&Ceilings::read_gbs, &Ceilings::cache_gbs, &Ceilings::int8_gops,
                                    &Ceilings::f32_gflops, &Ceilings::bf16_gflops, &Ceilings::f16_gflops}) {
      Ceilings c = good;
      c.*field = value;
      EXPECT_FALSE(plausible(c)) << value;
    }
  }
  Ceilings two = good;
  two.read_by_threads = {{1, 20.0}, {2, 17.0}};
  EXPECT_TRUE(plausible(two));
  two.read_by_threads.back().gbs = 15;  // something disturbed two threads
  EXPECT_FALSE(plausible(two));
}

}  // namespace
}  // namespace millrace
