// A progress bar on stderr, drawn only if stderr is a terminal. Transfers also show rate and time left, and without a
// terminal print a line every 20 seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace millrace {

class Progress {
 public:
  enum class Unit { Items, Bytes, Transfer };
  Progress(std::string label, int64_t total, Unit unit = Unit::Items);
  ~Progress();
  Progress(const Progress&) = delete;

  void set(int64_t done);  // call from one thread only

 private:
  using Clock = std::chrono::steady_clock;
  void draw();
  std::string label_;
  int64_t total_, done_ = 0;
  int64_t first_ = -1;  // of the first call: bytes that an earlier run had transferred
  Unit unit_;
  bool terminal_;
  Clock::time_point drawn_{}, started_;
};

// "12.3/45.6 MB 1.5 MB/s 0:22 left". `fresh`: the bytes among `done` that came in the last `seconds`.
std::string transfer_state(int64_t done, int64_t total, int64_t fresh, double seconds);

}  // namespace millrace
