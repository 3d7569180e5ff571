// Measured or estimated times of a step's ops, by op name.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace millrace {

struct OpTimes {
  struct Entry {
    std::string_view op;
    int64_t calls = 0;
    double us = 0;
  };
  std::vector<Entry> entries;

  void add(std::string_view op, double us, int64_t calls = 1) {
    for (auto& entry : entries) {
      if (entry.op != op) continue;
      entry.calls += calls;
      entry.us += us;
      return;
    }
    entries.push_back({op, calls, us});
  }
  // Adds the times of `other`, multiplied by `times`.
  void add(const OpTimes& other, int64_t times) {
    for (const auto& entry : other.entries) add(entry.op, entry.us * static_cast<double>(times), entry.calls * times);
  }
  double total_us() const {
    double sum = 0;
    for (const auto& entry : entries) sum += entry.us;
    return sum;
  }
};

}  // namespace millrace
