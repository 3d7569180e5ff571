#include "hardware/cuda/energy.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

namespace millrace {
namespace {

// NVML belongs to the driver, not to the toolkit, so it is loaded at run time. Its order of devices may differ from
// CUDA's: the bus id identifies a device.
struct Nvml {
  int (*by_bus)(const char*, void**) = nullptr;
  int (*energy)(void*, unsigned long long*) = nullptr;  // NOLINT(google-runtime-int): NVML's type

  static const Nvml& get() {
    static const Nvml nvml = [] {
      Nvml found;
      void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) return found;
      const auto init = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"));
      if (init == nullptr || init() != 0) return found;
      found.by_bus = reinterpret_cast<decltype(found.by_bus)>(::dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
      found.energy = reinterpret_cast<decltype(found.energy)>(::dlsym(library, "nvmlDeviceGetTotalEnergyConsumption"));
      return found;
    }();
    return nvml;
  }
};

}  // namespace

std::optional<double> read_gpu_joules(int index) {
  const Nvml& nvml = Nvml::get();
  if (nvml.by_bus == nullptr || nvml.energy == nullptr) return std::nullopt;
  char bus[32] = {};
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, index) != cudaSuccess) return std::nullopt;
  void* device = nullptr;
  unsigned long long millijoules = 0;  // NOLINT(google-runtime-int)
  if (nvml.by_bus(bus, &device) != 0 || nvml.energy(device, &millijoules) != 0) return std::nullopt;
  return static_cast<double>(millijoules) * 1e-3;
}

}  // namespace millrace
