// Records begin and end of every kernel of a program: a library that CUDA injects into any program.
//
//   CUDA_INJECTION64_PATH=./kernel_trace.so KERNEL_TRACE=trace.tsv PROGRAM...
//
// Writes one line per kernel: begin and end in nanoseconds, blocks, threads, registers, shared memory, name. Kernels of
// a graph are traced one by one, and so do not overlap. step_times.py adds them up; step_times.sh runs both.
#include <cupti.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;

struct Launch {
  uint64_t begin, end;
  int blocks, threads, registers, shared;
  std::string name;
};

std::mutex mutex;
std::vector<Launch>& launches() {
  static auto* all = new std::vector<Launch>;  // never destroyed: it is written at exit
  return *all;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = kBufferBytes;
  *records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto& k = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    launches().push_back({k.start, k.end, k.gridX * k.gridY * k.gridZ, k.blockX * k.blockY * k.blockZ,
                          k.registersPerThread, k.staticSharedMemory + k.dynamicSharedMemory, k.name});
  }
  std::free(buffer);
}

void write_down() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard lock(mutex);
  const char* path = std::getenv("KERNEL_TRACE");
  std::FILE* out = std::fopen(path != nullptr ? path : "kernel_trace.tsv", "w");
  if (out == nullptr) return;
  std::sort(launches().begin(), launches().end(), [](const Launch& a, const Launch& b) { return a.begin < b.begin; });
  for (const Launch& l : launches()) {
    std::fprintf(out, "%llu\t%llu\t%d\t%d\t%d\t%d\t%s\n", static_cast<unsigned long long>(l.begin),
                 static_cast<unsigned long long>(l.end), l.blocks, l.threads, l.registers, l.shared, l.name.c_str());
  }
  std::fclose(out);
}

}  // namespace

extern "C" int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(give_buffer, take_buffer) != CUPTI_SUCCESS) return 0;
  if (cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) return 0;
  std::atexit(write_down);
  return 1;
}
