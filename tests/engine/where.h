// Devices for the engine's tests: the CPU; the CPU with tokens chosen beside the logits and steps that run ahead, as on
// a GPU; and, in tests/cuda, a GPU.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "engine/runner.h"

namespace millrace {

enum class Where : unsigned char { Cpu, CpuAhead, Gpu };

inline LoadOptions at(Where where, LoadOptions options) {
  if (where == Where::Gpu) options.device = DeviceChoice::Cuda;
  options.device_draws = where != Where::Cpu;
  return options;
}

inline std::string name_of(const testing::TestParamInfo<Where>& info) {
  return info.param == Where::Cpu ? "Cpu" : info.param == Where::CpuAhead ? "CpuAhead" : "Gpu";
}

#ifdef MILLRACE_TEST_GPU
#define MR_EVERYWHERE testing::Values(Where::Gpu)
#else
#define MR_EVERYWHERE testing::Values(Where::Cpu, Where::CpuAhead)
#endif

}  // namespace millrace
