// Skips all tests with one line if this build cannot use a GPU here.
#include <gtest/gtest.h>

#include <cstdio>

#include "engine/where.h"
#include "hardware/device.h"

std::vector<millrace::Where> millrace::tested_places() { return {Where::Gpu}; }

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const std::string problem = millrace::cuda_problem(millrace::DeviceChoice::Cuda); !problem.empty()) {
    std::printf("the CUDA tests are skipped: %s\n", problem.c_str());
    return 0;
  }
  return RUN_ALL_TESTS();
}
