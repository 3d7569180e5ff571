#include "hardware/device_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "hardware/device.h"

namespace millrace {
namespace {

TEST(DeviceChoice, ReadsEveryForm) {
  EXPECT_EQ(parse_device("cpu"), DeviceChoice(DeviceChoice::Cpu));
  EXPECT_EQ(parse_device("cuda"), DeviceChoice(DeviceChoice::Cuda));
  EXPECT_EQ(parse_device("auto"), DeviceChoice(DeviceChoice::Auto));
  EXPECT_EQ(parse_device("cuda:0"), DeviceChoice(DeviceChoice::Cuda, 0));
  EXPECT_EQ(parse_device("cuda:12"), DeviceChoice(DeviceChoice::Cuda, 12));
}

TEST(DeviceChoice, RefusesAllElse) {
  for (const char* text : {"", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:1 ", "cuda:1.0",
                           "cuda1", "cpu:0", "auto:1", "cuda:99999999999"})
    EXPECT_FALSE(parse_device(text)) << text;
}

TEST(DeviceChoice, IsWrittenAsItIsRead) {
  for (const char* text : {"cpu", "cuda", "auto", "cuda:0", "cuda:7"}) {
    const auto choice = parse_device(text);
    ASSERT_TRUE(choice) << text;
    EXPECT_EQ(to_string(*choice), text);
  }
}

TEST(DeviceChoice, WithoutAnIndexIsTheFirstDevice) {
  EXPECT_EQ(parse_device("cuda")->cuda_index(), 0);
  EXPECT_EQ(parse_device("auto")->cuda_index(), 0);
  EXPECT_EQ(parse_device("cuda:3")->cuda_index(), 3);
}

TEST(DeviceChoice, AnIndexBeyondTheDevicesIsAProblem) {
  EXPECT_EQ(cuda_index_problem(0, 1), "");
  EXPECT_EQ(cuda_index_problem(1, 2), "");
  EXPECT_EQ(cuda_index_problem(0, 0), "no NVIDIA GPU");
  EXPECT_EQ(cuda_index_problem(1, 1), "no CUDA device 1: this machine has one, cuda:0");
  EXPECT_EQ(cuda_index_problem(2, 2), "no CUDA device 2: this machine has 2, cuda:0 to cuda:1");
}

TEST(OpenDevice, NamesTheMissingDevice) {
  const DeviceChoice absent(DeviceChoice::Cuda, 4711);
  EXPECT_NE(cuda_problem(absent), "");
  try {
    open_device({.choice = absent, .threads = 1});
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    EXPECT_EQ(std::string(error.what()).find("--device cuda:4711: "), 0U) << error.what();
  }
}

}  // namespace
}  // namespace millrace
