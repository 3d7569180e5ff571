#include "hardware/load.h"

#include <gtest/gtest.h>

#include "fake_root.h"

namespace millrace {
namespace {

// user, system, idle and stolen ticks of all CPUs, and the ticks of this process.
void set_times(FakeRoot& root, int64_t user, int64_t system, int64_t idle, int64_t steal, int64_t own) {
  const auto text = [](int64_t ticks) { return std::to_string(ticks); };
  root.file("proc/stat", "cpu  " + text(user) + " 0 " + text(system) + " " + text(idle) + " 7 0 0 " + text(steal) +
                             " 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\nctxt 5\n");
  root.file("proc/self/stat",
            "12 (a ) name) R 1 1 1 0 -1 4194304 9 8 7 6 " + text(own - 1) + " 1 0 0 20 0 3 0 55 1000 20\n");
}

TEST(Load, CountsOtherProgramsOnly) {
  FakeRoot root;
  set_times(root, 1000, 100, 5000, 0, 50);
  const LoadMeter meter(root.path());
  EXPECT_EQ(meter.others(), 0) << "no time has passed";
  set_times(root, 1150, 100, 5050, 0, 200);  // 200 ticks pass: 150 busy, all of them by this process
  EXPECT_EQ(meter.others(), 0);
  EXPECT_FALSE(meter.busy());
  set_times(root, 1190, 110, 5200, 0, 200);  // 400 ticks: 200 busy, 50 of them by others
  EXPECT_DOUBLE_EQ(meter.others(), 50.0 / 400);
  EXPECT_TRUE(meter.busy());
}

TEST(Load, TimeStolenByTheHostIsTakenByOthers) {
  FakeRoot root;
  set_times(root, 0, 0, 0, 0, 1);
  const LoadMeter meter(root.path());
  set_times(root, 50, 0, 25, 25, 51);
  EXPECT_DOUBLE_EQ(meter.others(), 0.25);
}

TEST(Load, SystemsThatDoNotTellAreNotBusy) {
  FakeRoot root;
  EXPECT_FALSE(read_cpu_times(root.path()));
  EXPECT_FALSE(LoadMeter(root.path()).busy());
  root.file("proc/stat", "cpu  1 2 3 4 5\n").file("proc/self/stat", "1 (x) R 1 1 1 0 -1 1 9 8 7 6 1 1 0\n");
  EXPECT_FALSE(read_cpu_times(root.path())) << "columns are missing";
  root.file("proc/stat", "cpu  1 2 3 4 5 6 7 8\n").file("proc/self/stat", "1 (x R 1");
  EXPECT_FALSE(read_cpu_times(root.path())) << "no end of the name";
}

TEST(Load, ClocksThatRunBackwardsAreNotBusy) {
  EXPECT_EQ(others_share({.busy = 10, .total = 100, .own = 0}, {.busy = 20, .total = 90, .own = 0}), 0);
  EXPECT_EQ(others_share({.busy = 10, .total = 100, .own = 0}, {.busy = 20, .total = 200, .own = 50}), 0);
}

TEST(Load, SaysSoInOneLine) {
  EXPECT_EQ(busy_text(0.625), "the machine is busy: other programs take 62 % of its CPU time");
}

}  // namespace
}  // namespace millrace
