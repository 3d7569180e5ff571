// What this machine is, and what it was measured to do at best. Plain data: kernels estimate from it, doctor prints it.
#pragma once

#include <cstdint>
#include <string>

#include "hardware/isa.h"

namespace millrace {

enum class DeviceKind : uint8_t { Cpu, Cuda };

// Measured, not from a data sheet. Rates are for all `threads` of the Hardware together.
struct Ceilings {
  double read_gbs = 20;       // streaming reads from main memory
  double cache_gbs = 60;      // streaming reads of data that fit the last-level cache
  double int8_gops = 100;     // multiply and add count as two
  double bf16_gflops = 50;
  double f32_gflops = 50;
  double region_us = 1.5;     // starting and joining one parallel region
  bool measured = false;      // false: the guesses above
};

struct Hardware {
  DeviceKind device = DeviceKind::Cpu;
  std::string name;           // "Neoverse-V1"
  std::string id;             // key of what is kept between runs: name, ISA, cores
  IsaSet isa;
  int threads = 1;            // that millrace will use
  int cores = 1;              // physical, allowed by affinity and cgroup
  int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 8 << 20;
  int64_t memory_bytes = 0;   // installed, or the cgroup's limit
  Ceilings ceilings;
};

}  // namespace millrace
