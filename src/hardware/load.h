// CPU time that other programs take on this machine. Timings of a busy machine are not worth keeping.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace millrace {

struct CpuTimes {  // in clock ticks, of all CPUs together
  int64_t busy = 0, total = 0;
  int64_t own = 0;  // of this process
};

// Reads /proc/stat and /proc/self/stat; nothing if they are missing or damaged. Tests pass another `root`.
std::optional<CpuTimes> read_cpu_times(const std::filesystem::path& root = "/");

// Share of all CPU time between two readings that other programs and other guests of the host took, 0 to 1.
double others_share(const CpuTimes& before, const CpuTimes& after);

inline constexpr double kBusyShare = 0.1;  // above it a machine is busy

// Measures from its construction on.
class LoadMeter {
 public:
  explicit LoadMeter(std::filesystem::path root = "/");
  static LoadMeter with_look_ahead();  // first waits a quarter of a second, so that earlier load counts
  double others() const;               // 0 where the system does not tell
  bool busy() const { return others() > kBusyShare; }

 private:
  std::filesystem::path root_;
  std::optional<CpuTimes> start_;
};

std::string busy_text(double others);  // "the machine is busy: other programs take 63 % of its CPU time"

}  // namespace millrace
