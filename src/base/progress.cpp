#include "base/progress.h"

#include <unistd.h>

#include <algorithm>

#include "base/tell.h"

namespace millrace {

using Clock = std::chrono::steady_clock;

Progress::Progress(std::string label, int64_t total, Unit unit)
    : label_(std::move(label)),
      total_(total),
      unit_(unit),
      visible_(isatty(STDERR_FILENO) != 0),
      started_(Clock::now()) {}

Progress::~Progress() {
  if (visible_ && drawn_ != Clock::time_point{}) tell(Stream::Stderr, "\r\033[K");
}

void Progress::set(int64_t done) {
  done_ = done;
  // Short waits draw no bar; long ones redraw it at most ten times a second.
  const auto now = Clock::now();
  if (!visible_ || now - started_ < std::chrono::milliseconds(200) || now - drawn_ < std::chrono::milliseconds(100))
    return;
  drawn_ = now;
  draw();
}

void Progress::draw() const {
  constexpr int kWidth = 30;
  const double share = total_ > 0 ? std::clamp(double(done_) / double(total_), 0.0, 1.0) : 0.0;
  const int full = static_cast<int>(share * kWidth);
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < full ? "━" : "╌";
  const std::string amount = unit_ == Unit::Bytes
                                 ? fmt::format("{:.1f}/{:.1f} MB", double(done_) / 1e6, double(total_) / 1e6)
                                 : fmt::format("{}/{}", done_, total_);
  tell(Stream::Stderr, "\r\033[K{} {} {:3.0f} % {}", label_, bar, share * 100, amount);
}

}  // namespace millrace
