#include "hardware/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> to_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The words of a small procfs or cgroupfs file; empty if the file does not exist.
std::vector<std::string> words_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string word; file >> word;) words.push_back(std::move(word));
  return words;
}

std::optional<int64_t> number_in(const fs::path& path) {
  const auto words = words_of(path);
  return words.empty() ? std::nullopt : to_number(words[0]);
}

// The sum of two fields of memory.stat, which holds lines of a name and a number.
int64_t stat_sum(const fs::path& path, std::string_view first, std::string_view second) {
  const auto words = words_of(path);
  int64_t sum = 0;
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    if (words[i] == first || words[i] == second) sum += to_number(words[i + 1]).value_or(0);
  }
  return sum;
}

template <class T>
void tighten(std::optional<T>& limit, T value) {
  limit = limit ? std::min(*limit, value) : value;
}

// Without a limit, v1 reports a number close to the largest possible one.
constexpr int64_t kNoLimit = int64_t{1} << 60;

struct MemoryFiles {
  const char *limit, *used, *inactive, *active;
};
constexpr MemoryFiles kMemoryV1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                "total_active_file"};
constexpr MemoryFiles kMemoryV2{"memory.max", "memory.current", "inactive_file", "active_file"};

void read_memory(const fs::path& group, const MemoryFiles& files, CgroupLimits& limits) {
  const auto limit = number_in(group / files.limit);  // v2 says "max" for no limit, which does not parse as a number
  if (!limit || *limit <= 0 || *limit >= kNoLimit) return;
  tighten(limits.memory_bytes, *limit);
  const int64_t used = number_in(group / files.used).value_or(0);
  const int64_t cache = stat_sum(group / "memory.stat", files.inactive, files.active);
  tighten(limits.memory_left, std::clamp<int64_t>(*limit - (used - std::min(used, cache)), 0, *limit));
}

void add_quota(std::optional<int64_t> quota, std::optional<int64_t> period, CgroupLimits& limits) {
  if (quota && period && *quota > 0 && *period > 0) tighten(limits.cpus, double(*quota) / double(*period));
}

void read_cpu_v1(const fs::path& group, CgroupLimits& limits) {
  add_quota(number_in(group / "cpu.cfs_quota_us"), number_in(group / "cpu.cfs_period_us"), limits);  // -1: none
}

void read_cpu_v2(const fs::path& group, CgroupLimits& limits) {
  const auto words = words_of(group / "cpu.max");
  if (words.size() == 2) add_quota(to_number(words[0]), to_number(words[1]), limits);
}

// Calls `visit` for the group and its ancestors: all their limits apply. In a container the path may be the host's and
// missing below our mount; then only the mount's root is visited, which is our group.
template <class Visit>
void walk_up(const fs::path& mount, const std::string& group, Visit visit) {
  fs::path relative = fs::path(group).relative_path().lexically_normal();
  for (;; relative = relative.parent_path()) {
    visit(mount / relative);
    if (relative.empty() || relative == ".") return;
  }
}

bool lists(const std::string& controllers, std::string_view wanted) {
  std::stringstream stream(controllers);
  for (std::string name; std::getline(stream, name, ',');) {
    if (name == wanted) return true;
  }
  return false;
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  CgroupLimits limits;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const fs::path& mount : {mounts, mounts / "unified"}) {  // /unified: cgroup v2 next to v1 on hybrid systems
        walk_up(mount, group, [&](const fs::path& at) { read_cpu_v2(at, limits), read_memory(at, kMemoryV2, limits); });
      }
    } else if (lists(controllers, "cpu")) {
      const fs::path mount = fs::exists(mounts / controllers) ? mounts / controllers : mounts / "cpu";
      walk_up(mount, group, [&](const fs::path& at) { read_cpu_v1(at, limits); });
    } else if (lists(controllers, "memory")) {
      walk_up(mounts / "memory", group, [&](const fs::path& at) { read_memory(at, kMemoryV1, limits); });
    }
  }
  return limits;
}

}  // namespace millrace
