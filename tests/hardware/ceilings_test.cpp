#include "hardware/ceilings.h"

#include <gtest/gtest.h>

#include <limits>

#include "hardware/detect.h"
#include "hardware/read_rate.h"

namespace millrace {
namespace {

// Relations that hold on any machine, even on a busy one.
TEST(Ceilings, AreMeasuredInPlausibleRelations) {
  const Hardware hardware = detect_cpu();
  ThreadPool pool(hardware.threads);
  const Ceilings c = measure_ceilings(hardware, pool);
  EXPECT_TRUE(c.measured);
  EXPECT_TRUE(plausible(c));
  EXPECT_GT(c.read_gbs, 0.1);
  EXPECT_GE(c.cache_gbs, c.read_gbs);
  EXPECT_GT(c.f32_gflops, 0.5);
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
  EXPECT_TRUE(plausible(c));
  ASSERT_EQ(c.read_by_threads.size(), 1u);
  EXPECT_EQ(c.read_by_threads.back().threads, 1);
}

TEST(Ceilings, EveryLevelIsAtLeastAsFastAsScalar) {
  double scalar = 0;
  for (const IsaLevel& level : isa_levels()) {
    const Hardware hardware = detect_cpu(1, level.allowed);
    ThreadPool pool(1);
    const Ceilings c = measure_ceilings(hardware, pool);
    if (scalar == 0) scalar = c.int8_gops;
    EXPECT_GE(c.int8_gops, scalar * 0.8) << level.name;
  }
}

TEST(Ceilings, DotProductsBeatPlainMultiplies) {
  const IsaSet isa = detect_isa();
  if (!isa.has(Isa::DotProd) && !isa.has(Isa::Avx512Vnni)) GTEST_SKIP() << "no dot products here";
  ThreadPool pool(1);
  const Ceilings c = measure_ceilings(detect_cpu(1), pool);
  EXPECT_GT(c.int8_gops, 1.5 * c.f32_gflops);
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
}

}  // namespace
}  // namespace millrace
