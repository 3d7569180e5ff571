// What the control groups (v1 and v2) that hold this process allow it: containers and services are limited this way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace millrace {

struct CgroupLimits {
  std::optional<double> cpus;           // quota over period; the tightest on the way to the root
  std::optional<int64_t> memory_bytes;  // the tightest limit
  std::optional<int64_t> memory_left;   // until the tightest limit, counting the file cache as free
};

// `root` is "/" but for tests.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace millrace
