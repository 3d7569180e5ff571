#include "hardware/cgroup.h"

#include <gtest/gtest.h>

#include "fake_root.h"
#include "hardware/detect.h"

namespace millrace {
namespace {

constexpr const char* kMeminfo = "MemTotal:       1000000 kB\nMemFree:   1 kB\nMemAvailable:    600000 kB\n";

TEST(Cgroup, NoFilesNoLimits) {
  FakeRoot root;
  const auto limits = read_cgroup_limits(root.path());
  EXPECT_FALSE(limits.cpus);
  EXPECT_FALSE(limits.memory_bytes);
  EXPECT_FALSE(limits.memory_left);
}

TEST(Cgroup, V2TakesTheTightestOnTheWayUp) {
  FakeRoot root;
  root.file("proc/self/cgroup", "0::/user.slice/job\n")
      .file("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n")
      .file("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n")
      .file("sys/fs/cgroup/user.slice/memory.max", "500000\n")
      .file("sys/fs/cgroup/user.slice/memory.current", "450000\n")
      .file("sys/fs/cgroup/user.slice/memory.stat", "anon 1\ninactive_file 100000\nactive_file 50000\n")
      .file("sys/fs/cgroup/user.slice/job/memory.max", "400000\n")
      .file("sys/fs/cgroup/user.slice/job/memory.current", "50000\n");
  const auto limits = read_cgroup_limits(root.path());
  EXPECT_DOUBLE_EQ(limits.cpus.value(), 1.5);
  EXPECT_EQ(limits.memory_bytes.value(), 400000);
  EXPECT_EQ(limits.memory_left.value(), 200000);  // the outer group's: 500000 - (450000 - 150000)
}

TEST(Cgroup, V1WithTheHostsPathInAContainer) {
  FakeRoot root;
  root.file("proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n")
      .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n")
      .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
      .file("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n")
      .file("sys/fs/cgroup/memory/memory.usage_in_bytes", "48576\n");
  const auto limits = read_cgroup_limits(root.path());
  EXPECT_DOUBLE_EQ(limits.cpus.value(), 4);
  EXPECT_EQ(limits.memory_bytes.value(), 1048576);
  EXPECT_EQ(limits.memory_left.value(), 1000000);
}

TEST(Cgroup, V1WithoutLimits) {
  FakeRoot root;
  root.file("proc/self/cgroup", "4:memory:/\n1:cpu:/\n0::/\n")
      .file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
      .file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
      .file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const auto limits = read_cgroup_limits(root.path());
  EXPECT_FALSE(limits.cpus);
  EXPECT_FALSE(limits.memory_bytes);
}

TEST(Cgroup, GarbageIsNoLimit) {
  FakeRoot root;
  root.file("proc/self/cgroup", "nonsense\n:\n0:\n::\n0::/../../a\n0::/b")
      .file("sys/fs/cgroup/b/cpu.max", "12x 100000")
      .file("sys/fs/cgroup/b/memory.max", "99999999999999999999999")
      .file("sys/fs/cgroup/cpu.max", "100000 0");
  const auto limits = read_cgroup_limits(root.path());
  EXPECT_FALSE(limits.cpus);
  EXPECT_FALSE(limits.memory_bytes);
}

TEST(Detect, QuotaBoundsCores) {
  const auto cores_with = [](const std::string& cpu_max) {
    FakeRoot root;
    root.file("proc/self/cgroup", "0::/\n").file("sys/fs/cgroup/cpu.max", cpu_max);
    return cores_under_quota(8, root.path());
  };
  EXPECT_EQ(cores_with("max 100000"), 8);
  EXPECT_EQ(cores_with("10000 100000"), 1);
  EXPECT_EQ(cores_with("250000 100000"), 3);
  EXPECT_EQ(cores_with("1600000 100000"), 8);
}

TEST(Detect, AvailableMemoryIsTheLesserOfMachineAndCgroup) {
  FakeRoot free, bound;
  free.file("proc/meminfo", kMeminfo);
  EXPECT_EQ(available_memory(free.path()), 600000 * 1024);
  bound.file("proc/meminfo", kMeminfo)
      .file("proc/self/cgroup", "0::/\n")
      .file("sys/fs/cgroup/memory.max", "4096000")
      .file("sys/fs/cgroup/memory.current", "96000");
  EXPECT_EQ(available_memory(bound.path()), 4000000);
}

}  // namespace
}  // namespace millrace
