#include "hardware/detect.h"

#include <hwloc.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <vector>

#include "base/ascii.h"
#include "base/error.h"
#include "hardware/ceilings.h"
#include "hardware/cgroup.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxThreads = 1024;

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDeleter>;
struct BitmapDeleter {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, BitmapDeleter>;

Topology load_topology() {
  hwloc_topology_t topology = nullptr;
  std::error_code error;  // in a bare chroot hwloc would write to stderr that it found nothing
  if (!fs::exists("/sys/devices/system/cpu", error)) return nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Topology owned(topology);
  return hwloc_topology_load(topology) == 0 ? std::move(owned) : nullptr;
}

// The logical CPUs that this thread may run on, in Linux's numbering.
Bitmap allowed_cpus() {
  Bitmap bitmap(hwloc_bitmap_alloc());
  for (size_t cpus = CPU_SETSIZE; cpus <= (1u << 16); cpus *= 2) {  // EINVAL: the machine has more CPUs
    std::vector<unsigned long> mask(cpus / (8 * sizeof(unsigned long)));
    const size_t bytes = mask.size() * sizeof(unsigned long);
    if (::sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(mask.data())) != 0) continue;
    hwloc_bitmap_from_ulongs(bitmap.get(), static_cast<unsigned>(mask.size()), mask.data());
    return bitmap;
  }
  hwloc_bitmap_fill(bitmap.get());
  return bitmap;
}

// Calls visit(object) for every object of the kind that shares a CPU with `allowed`.
template <class Visit>
void each_allowed(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t allowed, Visit visit) {
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    if (object->cpuset != nullptr && hwloc_bitmap_intersects(object->cpuset, allowed) != 0) visit(object);
  }
}

int count_allowed(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t allowed) {
  int count = 0;
  each_allowed(topology, type, allowed, [&](hwloc_obj_t) { ++count; });
  return count;
}

int64_t smallest_cache(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t allowed) {
  int64_t smallest = 0;
  each_allowed(topology, type, allowed, [&](hwloc_obj_t cache) {
    const auto bytes = static_cast<int64_t>(cache->attr->cache.size);
    if (bytes > 0) smallest = smallest == 0 ? bytes : std::min(smallest, bytes);
  });
  return smallest;
}

// Fields that the topology leaves out (bare containers, virtual machines) keep their defaults.
void read_topology(Hardware& hardware) {
  const Bitmap allowed = allowed_cpus();
  const Topology topology = load_topology();
  if (topology == nullptr) {
    hardware.cores = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
    return;
  }
  const int logical = std::max(1, count_allowed(topology.get(), HWLOC_OBJ_PU, allowed.get()));
  const int physical = count_allowed(topology.get(), HWLOC_OBJ_CORE, allowed.get());
  hardware.cores = physical > 0 ? physical : logical;
  each_allowed(topology.get(), HWLOC_OBJ_CORE, allowed.get(), [&](hwloc_obj_t core) {
    hardware.threads_per_core = std::max(hardware.threads_per_core, hwloc_bitmap_weight(core->cpuset));
  });
  hardware.numa_nodes = std::max(1, count_allowed(topology.get(), HWLOC_OBJ_NUMANODE, allowed.get()));
  if (auto bytes = smallest_cache(topology.get(), HWLOC_OBJ_L1CACHE, allowed.get())) hardware.l1_bytes = bytes;
  if (auto bytes = smallest_cache(topology.get(), HWLOC_OBJ_L2CACHE, allowed.get())) hardware.l2_bytes = bytes;
  int64_t l3 = 0;
  each_allowed(topology.get(), HWLOC_OBJ_L3CACHE, allowed.get(),
               [&](hwloc_obj_t cache) { l3 += static_cast<int64_t>(cache->attr->cache.size); });
  hardware.l3_bytes = l3 > 0 ? l3 : hardware.l2_bytes * hardware.cores;
}

// The kernel's own numbers, for roots without /proc. They do not say how much of the page cache could be freed.
int64_t sysinfo_memory(bool total) {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return 0;
  return static_cast<int64_t>(total ? info.totalram : info.freeram + info.bufferram) * info.mem_unit;
}

// A line "MemTotal:  24576000 kB" of /proc/meminfo.
int64_t meminfo(const fs::path& root, const std::string& field) {
  std::ifstream file(root / "proc/meminfo");
  if (!file && root == "/") return sysinfo_memory(field == "MemTotal");
  for (std::string name; file >> name;) {
    int64_t kilobytes = 0;
    if (name == field + ":" && file >> kilobytes) return kilobytes * 1024;
    file.ignore(256, '\n');
  }
  return 0;
}

}  // namespace

std::string hardware_id(std::string_view description) {
  std::string id;
  for (const char c : description) {
    if (is_ascii_alnum(c) || c == '.') {
      id += ascii_lower(c);
    } else if (!id.empty() && id.back() != '-') {
      id += '-';
    }
  }
  return id;
}

int cores_under_quota(int cores, const fs::path& root) {
  const auto quota = read_cgroup_limits(root).cpus;
  if (!quota) return cores;
  return std::clamp(static_cast<int>(std::lround(std::min(*quota, 1e6))), 1, cores);
}

int64_t available_memory(const fs::path& root) {
  const int64_t machine = meminfo(root, "MemAvailable");
  return std::min(machine, read_cgroup_limits(root).memory_left.value_or(machine));
}

Hardware detect_cpu(int threads, IsaSet allowed) {
  Hardware hardware;
  hardware.name = cpu_name();
  hardware.isa = detect_isa().both(allowed);
  read_topology(hardware);
  hardware.cores = cores_under_quota(hardware.cores);
  hardware.threads = threads > 0 ? std::min(threads, kMaxThreads) : hardware.cores;
  hardware.memory_bytes = meminfo("/", "MemTotal");
  hardware.memory_bytes =
      std::min(hardware.memory_bytes, read_cgroup_limits().memory_bytes.value_or(hardware.memory_bytes));
  hardware.id = hardware_id(
      fmt::format("{} {}c{}t {}", hardware.name, hardware.cores, hardware.threads, to_string(hardware.isa)));
  hardware.ceilings = guess_ceilings(hardware);
  return hardware;
}

}  // namespace millrace
