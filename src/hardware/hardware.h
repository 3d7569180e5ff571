// Description of a device and its peak rates. Plain data: kernels estimate from it, `millrace doctor` prints it.
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

// Peak rates of all `threads` together, measured or guessed.
struct Ceilings {
  double read_gbs = 20;     // streaming reads from main memory
  double cache_gbs = 60;    // streaming reads of data in each core's own L2
  double int8_gops = 100;   // a multiply-add counts as two
  double bf16_gflops = 50;  // bf16 inputs, f32 sums; without such instructions the f32 rate
  double f16_gflops = 50;   // f16 inputs and sums; without such instructions the f32 rate
  double f32_gflops = 50;
  double region_us = 1.5;  // starting and joining one parallel region; on a GPU the gap between two kernels
  bool measured = false;   // false: guessed from the instruction set and the number of threads
  double cpu_share = 1;    // CPU time received / CPU time requested while measuring; much below 1: the machine was busy
  std::vector<ReadRate> read_by_threads;  // shows how many cores saturate the memory bus; empty when guessed
};

struct Hardware {
  DeviceKind device = DeviceKind::Cpu;
  std::string name;  // "Neoverse-V1"
  std::string id;    // key of cached measurements and plans: name, cores, threads, ISA
  IsaSet isa;        // narrowed to --isa
  int threads = 1;
  int cores = 1;             // physical cores that affinity and cgroup allow; on a GPU multiprocessors
  int threads_per_core = 1;  // 2 with SMT
  int numa_nodes = 1;
  int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10;  // per core; l1_bytes of a GPU: shared memory per multiprocessor
  int64_t l3_bytes = 8 << 20;                         // of all allowed cores together
  int64_t memory_bytes = 0;                           // installed, or the cgroup's limit
  int cuda_index = -1;   // CUDA's index of a GPU. Not part of `id`: equal GPUs share their plans
  int architecture = 0;  // of a GPU: 90 is compute capability 9.0
  int driver = 0;        // of a GPU: the CUDA version that its driver supports, 13000 for 13.0
  Ceilings ceilings;
};

}  // namespace millrace
