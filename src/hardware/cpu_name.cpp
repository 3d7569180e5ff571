#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include <fmt/core.h>

#include "hardware/detect.h"

namespace millrace {
namespace {

struct ArmPart {
  long implementer, part;
  std::string_view name;
};

// ARM kernels report part numbers, not names. These are the cores that inference is likely to meet.
constexpr ArmPart kArmParts[] = {
    {0x41, 0xd03, "Cortex-A53"},  {0x41, 0xd05, "Cortex-A55"},  {0x41, 0xd07, "Cortex-A57"},
    {0x41, 0xd08, "Cortex-A72"},  {0x41, 0xd0a, "Cortex-A75"},  {0x41, 0xd0b, "Cortex-A76"},
    {0x41, 0xd0c, "Neoverse-N1"}, {0x41, 0xd0d, "Cortex-A77"},  {0x41, 0xd40, "Neoverse-V1"},
    {0x41, 0xd41, "Cortex-A78"},  {0x41, 0xd44, "Cortex-X1"},   {0x41, 0xd46, "Cortex-A510"},
    {0x41, 0xd47, "Cortex-A710"}, {0x41, 0xd48, "Cortex-X2"},   {0x41, 0xd49, "Neoverse-N2"},
    {0x41, 0xd4a, "Neoverse-E1"}, {0x41, 0xd4b, "Cortex-A78C"}, {0x41, 0xd4d, "Cortex-A715"},
    {0x41, 0xd4e, "Cortex-X3"},   {0x41, 0xd4f, "Neoverse-V2"}, {0x41, 0xd80, "Cortex-A520"},
    {0x41, 0xd81, "Cortex-A720"}, {0x41, 0xd82, "Cortex-X4"},   {0x41, 0xd84, "Neoverse-V3"},
    {0x41, 0xd8e, "Neoverse-N3"}, {0x46, 0x001, "A64FX"},       {0x48, 0xd01, "Kunpeng-920"},
    {0x4e, 0x004, "Carmel"},      {0x51, 0x001, "Oryon"},       {0x61, 0x022, "Apple-M1"},
    {0x61, 0x023, "Apple-M1"},    {0x61, 0x032, "Apple-M2"},    {0x61, 0x033, "Apple-M2"},
    {0xc0, 0xac3, "Ampere-1"},    {0xc0, 0xac4, "Ampere-1a"},
};

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string_view::npos ? "" : std::string(text.substr(begin, end - begin + 1));
}

}  // namespace

// On big.LITTLE machines the last part wins: Linux lists the big cores last.
std::string cpu_name(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/cpuinfo");
  std::string model;
  long implementer = -1, part = -1;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string field = trimmed(std::string_view(line).substr(0, colon));
    const std::string value = trimmed(std::string_view(line).substr(colon + 1));
    if (field == "model name") model = value;
    if (field == "CPU implementer") implementer = std::strtol(value.c_str(), nullptr, 0);
    if (field == "CPU part") part = std::strtol(value.c_str(), nullptr, 0);
  }
  if (!model.empty()) return model;
  const auto known = std::find_if(std::begin(kArmParts), std::end(kArmParts),
                                  [&](const ArmPart& p) { return p.implementer == implementer && p.part == part; });
  if (known != std::end(kArmParts)) return std::string(known->name);
  if (implementer >= 0) return fmt::format("ARM {:#x}-{:#x}", implementer, part);
  return "unknown CPU";
}

}  // namespace millrace
