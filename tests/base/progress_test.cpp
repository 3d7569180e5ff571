#include "base/progress.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Progress, RateAndTimeLeft) {
  EXPECT_EQ(transfer_state(20'000'000, 100'000'000, 20'000'000, 10), "20.0/100.0 MB 2.0 MB/s 0:40 left");
  EXPECT_EQ(transfer_state(90'000'000, 100'000'000, 5'000'000, 5), "90.0/100.0 MB 1.0 MB/s 0:10 left") << "resumed";
  EXPECT_EQ(transfer_state(1'000'000, 8'000'000'000, 1'000'000, 1), "1.0/8000.0 MB 1.0 MB/s 2:13:19 left");
}

TEST(Progress, WithoutTotalOrRate) {
  EXPECT_EQ(transfer_state(5'000'000, 0, 5'000'000, 5), "5.0 MB 1.0 MB/s");
  EXPECT_EQ(transfer_state(5'000'000, 9'000'000, 0, 5), "5.0/9.0 MB");
  EXPECT_EQ(transfer_state(9'000'000, 9'000'000, 9'000'000, 9), "9.0/9.0 MB 1.0 MB/s");
  EXPECT_EQ(transfer_state(1, 1'000'000'000, 1, 1000), "0.0/1000.0 MB 0.0 MB/s 100:00:00 left");
}

}  // namespace
}  // namespace millrace
