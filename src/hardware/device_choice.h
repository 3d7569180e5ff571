// The device that a user asks for: "cpu", "cuda", "cuda:1" or "auto".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct DeviceChoice {
  enum Kind : uint8_t { Cpu, Cuda, Auto };

  constexpr DeviceChoice(Kind kind = Cpu, std::optional<int> index = {}) : kind(kind), index(index) {}

  Kind kind;
  std::optional<int> index;  // CUDA's number of the device, from "cuda:N"

  // "cuda" and "auto" mean the first device. No other code picks a default.
  constexpr int cuda_index() const { return index.value_or(0); }

  friend bool operator==(const DeviceChoice&, const DeviceChoice&) = default;
};

std::optional<DeviceChoice> parse_device(std::string_view text);  // nothing: not a device name
std::string to_string(const DeviceChoice& choice);                // parse_device() reads it back

// Why a machine with `count` CUDA devices has no device `index`; empty: it has one.
std::string cuda_index_problem(int index, int count);

}  // namespace millrace
