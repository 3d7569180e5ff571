// Tokens per second over the last seconds, for the live view.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

class TokenRate {
 public:
  // `total` tokens had been generated at `now`, in seconds.
  void note(double now, uint64_t total) {
    if (noted_ > 0 && now - marks_[(noted_ - 1) % kMarks].time < kSpacing) return;
    marks_[noted_++ % kMarks] = {now, total};
  }
  double per_second(double now, uint64_t total) const {
    if (noted_ == 0) return 0;
    const Mark& oldest = marks_[noted_ < kMarks ? 0 : noted_ % kMarks];
    return now > oldest.time ? static_cast<double>(total - oldest.total) / (now - oldest.time) : 0;
  }

 private:
  static constexpr size_t kMarks = 10;
  static constexpr double kSpacing = 0.5;  // seconds; the window spans about five seconds
  struct Mark {
    double time = 0;
    uint64_t total = 0;
  };
  std::array<Mark, kMarks> marks_;
  size_t noted_ = 0;
};

}  // namespace millrace
