// Looks at the machine without measuring it: milliseconds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "hardware/hardware.h"

namespace millrace {

// threads 0: one per usable physical core. The instruction set is narrowed to `allowed`. Ceilings are guesses.
Hardware detect_cpu(int threads = 0, IsaSet allowed = detect_isa());

// What can still be allocated now without swapping: the machine's and the cgroup's, whichever is less.
int64_t available_memory(const std::filesystem::path& root = "/");

// The id of a machine that is described so. A file name: lower case letters, digits, dots and dashes only.
std::string hardware_id(std::string_view description);

// "Neoverse-N1", or whatever /proc/cpuinfo below `root` calls the processor.
std::string cpu_name(const std::filesystem::path& root = "/");

// Physical cores to use, of those that affinity allows, under a cgroup's quota of CPU time.
int cores_under_quota(int cores, const std::filesystem::path& root = "/");

}  // namespace millrace
