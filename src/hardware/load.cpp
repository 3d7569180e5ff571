#include "hardware/load.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

namespace millrace {
namespace {

constexpr std::chrono::milliseconds kLookAhead{250};

// user, nice, system, idle, iowait, irq, softirq, steal. The columns behind them are parts of user and nice.
constexpr size_t kStates = 8, kIdle = 3, kIoWait = 4;

// utime and stime, counted from the state, which follows the program's name in parentheses.
constexpr size_t kUserTime = 11, kSystemTime = 12;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::optional<int64_t> own_ticks(const std::string& stat) {
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream in(stat.substr(name_end + 1));
  std::string skipped;
  for (size_t i = 0; i < kUserTime; ++i) in >> skipped;
  int64_t user = 0, system = 0;
  static_assert(kSystemTime == kUserTime + 1);
  if (!(in >> user >> system)) return std::nullopt;
  return user + system;
}

}  // namespace

std::optional<CpuTimes> read_cpu_times(const std::filesystem::path& root) {
  std::istringstream in(text_of(root / "proc/stat"));
  std::string name;
  if (!(in >> name) || name != "cpu") return std::nullopt;
  CpuTimes times;
  for (size_t i = 0; i < kStates; ++i) {
    int64_t ticks = 0;
    if (!(in >> ticks) || ticks < 0) return std::nullopt;
    times.total += ticks;
    if (i != kIdle && i != kIoWait) times.busy += ticks;
  }
  const auto own = own_ticks(text_of(root / "proc/self/stat"));
  if (!own) return std::nullopt;
  times.own = *own;
  return times;
}

double others_share(const CpuTimes& before, const CpuTimes& after) {
  const int64_t total = after.total - before.total;
  if (total <= 0) return 0;
  const int64_t others = (after.busy - before.busy) - (after.own - before.own);
  return std::clamp(static_cast<double>(others) / static_cast<double>(total), 0.0, 1.0);
}

LoadMeter::LoadMeter(std::filesystem::path root) : root_(std::move(root)), start_(read_cpu_times(root_)) {}

LoadMeter LoadMeter::with_look_ahead() {
  LoadMeter meter;
  std::this_thread::sleep_for(kLookAhead);
  return meter;
}

double LoadMeter::others() const {
  const auto now = read_cpu_times(root_);
  return start_ && now ? others_share(*start_, *now) : 0;
}

std::string busy_text(double others) {
  return fmt::format("the machine is busy: other programs take {:.0f} % of its CPU time", 100 * others);
}

}  // namespace millrace
