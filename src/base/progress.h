// A progress bar on stderr, drawn only if stderr is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace millrace {

class Progress {
 public:
  enum class Unit { Items, Bytes };
  Progress(std::string label, int64_t total, Unit unit = Unit::Items);
  ~Progress();
  Progress(const Progress&) = delete;

  void set(int64_t done);  // call from one thread only

 private:
  void draw() const;
  std::string label_;
  int64_t total_, done_ = 0;
  Unit unit_;
  bool visible_;
  mutable std::chrono::steady_clock::time_point drawn_{};
  std::chrono::steady_clock::time_point started_;
};

}  // namespace millrace
