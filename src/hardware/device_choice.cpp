#include "hardware/device_choice.h"

#include <fmt/core.h>

#include <charconv>

namespace millrace {

std::optional<DeviceChoice> parse_device(std::string_view text) {
  constexpr std::string_view kIndexed = "cuda:";
  if (text == "cpu") return DeviceChoice::Cpu;
  if (text == "cuda") return DeviceChoice::Cuda;
  if (text == "auto") return DeviceChoice::Auto;
  if (!text.starts_with(kIndexed)) return std::nullopt;
  text.remove_prefix(kIndexed.size());
  int index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size() || index < 0) return std::nullopt;
  return DeviceChoice(DeviceChoice::Cuda, index);
}

std::string to_string(const DeviceChoice& choice) {
  if (choice.kind == DeviceChoice::Cpu) return "cpu";
  if (choice.kind == DeviceChoice::Auto) return "auto";
  return choice.index ? fmt::format("cuda:{}", *choice.index) : "cuda";
}

std::string cuda_index_problem(int index, int count) {
  if (index >= 0 && index < count) return "";
  if (count == 0) return "no NVIDIA GPU";
  if (count == 1) return fmt::format("no CUDA device {}: this machine has one, cuda:0", index);
  return fmt::format("no CUDA device {}: this machine has {}, cuda:0 to cuda:{}", index, count, count - 1);
}

}  // namespace millrace
