#include "hardware/energy.h"

#include <gtest/gtest.h>

#include "fake_root.h"
#include "hardware/device.h"

namespace millrace {
namespace {

TEST(Energy, AddsUpAllPackages) {
  FakeRoot root;
  EXPECT_FALSE(read_package_joules(root.path().c_str()));
  root.file("sys/class/powercap/intel-rapl:0/energy_uj", "1500000\n")
      .file("sys/class/powercap/intel-rapl:1/energy_uj", "250000\n");
  EXPECT_EQ(read_package_joules(root.path().c_str()), 1.75);
}

struct CountingDevice final : Device {
  int64_t available_memory() const override { return 0; }
  Memory& memory() override { return host_memory(); }
  Memory& staging() override { return host_memory(); }
  std::unique_ptr<Uploader> new_uploader() override { return nullptr; }
  void enqueue_write(std::byte*, const std::byte*, size_t) override {}
  void enqueue_read(std::byte*, const std::byte*, size_t) override {}
  void clear(std::byte*, size_t) override {}
  void finish() override {}
  std::optional<double> joules() const override { return used; }
  std::optional<double> used;
};

TEST(Energy, PowerIsAveragedOverWindows) {
  CountingDevice device;
  device.used = 10;
  PowerMeter meter(device);
  EXPECT_FALSE(meter.watts(1.0));  // a first reading tells nothing
  device.used = 30;
  EXPECT_FALSE(meter.watts(1.05));  // too early
  EXPECT_EQ(meter.watts(1.25), 80);
  device.used = 1e6;
  EXPECT_EQ(meter.watts(9), 80) << "an idle pause is no window";
  device.used = 5;
  EXPECT_EQ(meter.watts(9.5), 80) << "the counter wrapped around";
  device.used = 25;
  EXPECT_EQ(meter.watts(10), 40);
}

TEST(Energy, DevicesThatDoNotCountAreAskedOnce) {
  CountingDevice device;
  PowerMeter meter(device);
  EXPECT_FALSE(meter.watts(1));
  device.used = 5;
  EXPECT_FALSE(meter.watts(2));
  EXPECT_FALSE(meter.watts(3));
}

}  // namespace
}  // namespace millrace
