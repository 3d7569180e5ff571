// Describes the machine without measuring it; takes milliseconds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "hardware/hardware.h"

namespace millrace {

// threads 0: one per usable physical core. The instruction set is narrowed to `allowed`. Ceilings are guesses.
Hardware detect_cpu(int threads = 0, IsaSet allowed = detect_isa());

// Bytes that can be allocated now without swapping: the minimum of the machine's and the cgroup's.
int64_t available_memory(const std::filesystem::path& root = "/");

// An id made from the description, usable as a file name: lower case letters, digits, dots and dashes.
std::string hardware_id(std::string_view description);

// "Neoverse-N1", or the processor's name from /proc/cpuinfo below `root`.
std::string cpu_name(const std::filesystem::path& root = "/");

// `cores` limited by the cgroup's CPU quota, at least one.
int cores_under_quota(int cores, const std::filesystem::path& root = "/");

}  // namespace millrace
