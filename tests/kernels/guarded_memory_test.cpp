// The pages behind operands, on which the tests of all kernels rely (tests/guarded_memory.cpp).
#include <gtest/gtest.h>

#include <vector>

namespace millrace {
namespace {

TEST(GuardedMemoryDeathTest, AnAccessBeyondAnOperandEndsTheTest) {
  std::vector<float> operand(100);
  const volatile float* data = operand.data();
  EXPECT_EQ(data[99], 0.0f);
  EXPECT_DEATH(static_cast<void>(data[100]), "");
  operand.clear();
  operand.shrink_to_fit();  // frees it
  EXPECT_DEATH(static_cast<void>(data[0]), "");
}

}  // namespace
}  // namespace millrace
