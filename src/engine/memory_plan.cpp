#include "engine/memory_plan.h"

#include <array>

#include "base/error.h"

namespace millrace {

std::string human_bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

int64_t MemoryPlan::total() const {
  int64_t sum = 0;
  for (const auto& line : lines) sum += line.bytes;
  return sum;
}

std::string MemoryPlan::to_string() const {
  std::string text;
  for (const auto& line : lines)
    text += fmt::format("{}{} {}", text.empty() ? "" : " + ", line.what, human_bytes(line.bytes));
  return fmt::format("{} = {} of {} available", text, human_bytes(total()), human_bytes(available));
}

void MemoryPlan::check(const std::string& model) const {
  if (total() <= available) return;
  fail(ErrorKind::OutOfMemory, "{} does not fit in memory: {}; try a smaller --ctx or a smaller quantization", model,
       to_string());
}

}  // namespace millrace
