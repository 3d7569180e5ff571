// Devices for the engine's tests: the CPU; the CPU with tokens chosen beside the logits and steps that run ahead, as on
// a GPU; and, in tests/cuda, a GPU.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

std::vector<Where> tested_places();  // of this program: tests/engine/where.cpp, tests/cuda/main.cpp

}  // namespace millrace
