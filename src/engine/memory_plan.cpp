#include "engine/memory_plan.h"

#include <array>
#include <cctype>
#include <charconv>

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

std::optional<int64_t> parse_bytes(std::string_view text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || !(value >= 0)) return std::nullopt;
  std::string unit;
  for (const char c : text.substr(static_cast<size_t>(end - text.data()))) {
    if (c != ' ') unit += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  if (unit.ends_with('B')) unit.pop_back();
  const bool binary = unit.ends_with('I');
  if (binary) unit.pop_back();
  constexpr std::string_view kPrefixes = "KMGT";
  double factor = 1;
  if (!unit.empty()) {
    const size_t power = kPrefixes.find(unit);
    if (unit.size() != 1 || power == std::string_view::npos) return std::nullopt;
    for (size_t i = 0; i <= power; ++i) factor *= binary ? 1024 : 1000;
  } else if (binary) {
    return std::nullopt;
  }
  constexpr double kMost = 1e18;
  if (value * factor > kMost) return std::nullopt;
  return static_cast<int64_t>(value * factor);
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
  int64_t weights = 0;
  for (const auto& line : lines) weights += line.what.find("weights") != std::string::npos ? line.bytes : 0;
  // No context is short enough if the weights alone exceed the memory.
  const char* advice =
      weights > available ? "a smaller quantization or a smaller model" : "a smaller --ctx or a smaller quantization";
  fail(ErrorKind::OutOfMemory, "{} does not fit in memory: {}; try {}", model, to_string(), advice);
}

}  // namespace millrace
