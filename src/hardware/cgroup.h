// Limits that control groups (v1 and v2) set for this process, as containers and services do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace millrace {

struct CgroupLimits {
  std::optional<double> cpus;           // quota / period; the minimum over the group and its ancestors
  std::optional<int64_t> memory_bytes;  // the minimum over the group and its ancestors
  std::optional<int64_t> memory_left;   // bytes until the tightest limit; the file cache counts as free
};

// Tests pass another `root`.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace millrace
