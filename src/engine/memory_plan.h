// The memory of a loaded model, computed before any large allocation. A model that does not fit is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct MemoryPlan {
  struct Line {
    std::string what;
    int64_t bytes = 0;
  };
  std::vector<Line> lines;
  int64_t available = 0;  // when the plan was made

  void add(std::string what, size_t bytes) { lines.push_back({std::move(what), static_cast<int64_t>(bytes)}); }
  int64_t total() const;
  std::string to_string() const;  // "weights 81.4 MB + KV cache 94.4 MB + ... = 190.2 MB of 22.9 GB available"
  void check(const std::string& model) const;  // throws OutOfMemory with the plan in the message
};

std::string human_bytes(int64_t bytes);
// "24GB", "24G", "1.5 GiB", "800M" or plain bytes; nullopt: none of these.
std::optional<int64_t> parse_bytes(std::string_view text);

}  // namespace millrace
