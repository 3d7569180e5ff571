// What this machine is, and what it was measured to do at best. Plain data: kernels estimate from it, doctor prints it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hardware/isa.h"

namespace millrace {

enum class DeviceKind : uint8_t { Cpu, Cuda };

struct ReadRate {
  int threads = 1;
  double gbs = 0;
};

// Measured, not from a data sheet. Rates are for all `threads` of the Hardware together.
struct Ceilings {
  double read_gbs = 20;     // streaming reads from main memory
  double cache_gbs = 60;    // streaming reads of data that every core finds in its own L2
  double int8_gops = 100;   // multiply and add count as two
  double bf16_gflops = 50;  // bf16 inputs, f32 sums; without such instructions what f32 arithmetic gives
  double f16_gflops = 50;   // f16 inputs and sums; without such instructions what f32 arithmetic gives
  double f32_gflops = 50;
  double region_us = 1.5;  // starting and joining one parallel region
  bool measured = false;   // false: guessed from the instruction set and the number of threads
  double cpu_share = 1;    // of the CPU time asked for that measuring got: much below 1, the machine was busy
  std::vector<ReadRate> read_by_threads;  // how many cores fill the memory bus; empty when guessed
};

struct Hardware {
  DeviceKind device = DeviceKind::Cpu;
  std::string name;          // "Neoverse-V1"
  std::string id;            // key of what is kept between runs: name, cores, threads, ISA
  IsaSet isa;                // of the machine, narrowed to what the user allows
  int threads = 1;           // that millrace will use
  int cores = 1;             // physical, allowed by affinity and cgroup
  int threads_per_core = 1;  // 2 with SMT
  int numa_nodes = 1;
  int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10;  // of one core
  int64_t l3_bytes = 8 << 20;                         // of all allowed cores together
  int64_t memory_bytes = 0;                           // installed, or the cgroup's limit
  int cuda_index = -1;   // CUDA's number of a GPU; not part of `id`: equal GPUs share their plans
  int architecture = 0;  // of a GPU: 90 is compute capability 9.0; `cores` are its multiprocessors, L1 what each shares
  int driver = 0;        // of a GPU: the CUDA version it brings, 13000 for 13.0
  Ceilings ceilings;
};

}  // namespace millrace
