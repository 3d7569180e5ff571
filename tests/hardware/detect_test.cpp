#include "hardware/detect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "fake_root.h"

namespace millrace {
namespace {

std::string name_from(const std::string& cpuinfo) {
  FakeRoot root;
  root.file("proc/cpuinfo", cpuinfo);
  return cpu_name(root.path());
}

TEST(Detect, NamesTheProcessor) {
  EXPECT_EQ(name_from("CPU implementer\t: 0x41\nCPU variant : 0x1\nCPU part\t: 0xd0c\n"), "Neoverse-N1");
  EXPECT_EQ(name_from("CPU implementer\t: 0x41\nCPU part\t: 0xfff\n"), "ARM 0x41-0xfff");
  EXPECT_EQ(name_from("processor : 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8481C  \n"),
            "Intel(R) Xeon(R) Platinum 8481C");
  EXPECT_EQ(name_from(""), "unknown CPU");
}

TEST(Detect, FindsAPlausibleMachine) {
  const Hardware hardware = detect_cpu();
  EXPECT_FALSE(hardware.name.empty());
  EXPECT_GE(hardware.cores, 1);
  EXPECT_LE(hardware.cores, static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_EQ(hardware.threads, hardware.cores);
  EXPECT_GE(hardware.threads_per_core, 1);
  EXPECT_GE(hardware.numa_nodes, 1);
  EXPECT_GE(hardware.l1_bytes, 4 << 10);
  EXPECT_GE(hardware.l2_bytes, hardware.l1_bytes);
  EXPECT_GE(hardware.l3_bytes, hardware.l2_bytes);
  EXPECT_GT(hardware.memory_bytes, 64 << 20);
  EXPECT_LE(available_memory(), hardware.memory_bytes);
  EXPECT_GT(available_memory(), 0);
  EXPECT_FALSE(hardware.ceilings.measured);
}

TEST(Detect, AffinityCounts) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const Hardware narrowed = detect_cpu();
  ::sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(narrowed.cores, 1);
  EXPECT_EQ(narrowed.threads, 1);
}

TEST(Detect, IdIsAStableFileNameThatTellsSettingsApart) {
  const Hardware one = detect_cpu(1), two = detect_cpu(2), scalar = detect_cpu(1, IsaSet());
  EXPECT_EQ(one.id, detect_cpu(1).id);
  EXPECT_THAT(one.id, testing::MatchesRegex("[a-z0-9.-]+"));
  EXPECT_NE(one.id, two.id);
  EXPECT_EQ(scalar.isa, IsaSet());
  EXPECT_EQ(one.id == scalar.id, detect_isa() == IsaSet());
}

TEST(Detect, GuessesGrowWithTheInstructionSet) {
  const Ceilings all = detect_cpu(1).ceilings, scalar = detect_cpu(1, IsaSet()).ceilings;
  EXPECT_GE(all.int8_gops, scalar.int8_gops);
  EXPECT_GE(all.f32_gflops, scalar.f32_gflops);
}

}  // namespace
}  // namespace millrace
