#include "base/progress.h"

#include <unistd.h>

#include <algorithm>

#include "base/environment.h"
#include "base/tell.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

std::string megabytes(int64_t done, int64_t total) {
  return fmt::format("{:.1f}/{:.1f} MB", double(done) / 1e6, double(total) / 1e6);
}

}  // namespace

Progress::Progress(std::string label, int64_t total, Unit unit)
    : label_(std::move(label)),
      total_(total),
      unit_(unit),
      terminal_(isatty(STDERR_FILENO) != 0 && environment_variable("TERM", "dumb") != "dumb"),
      started_(Clock::now()) {}

Progress::~Progress() {
  if (terminal_ && drawn_ != Clock::time_point{}) tell(Stream::Stderr, "\r\033[K");
}

void Progress::set(int64_t done) {
  done_ = done;
  if (first_ < 0) first_ = done;
  if (!terminal_ && unit_ != Unit::Transfer) return;
  // Short waits draw nothing. A terminal is redrawn at most ten times a second; a log gets few lines.
  const auto now = Clock::now();
  const milliseconds wait(terminal_ ? 200 : 20000), pause(terminal_ ? 100 : 20000);
  if (now - started_ < wait || now - drawn_ < pause) return;
  drawn_ = now;
  draw();
}

void Progress::draw() {
  constexpr int kWidth = 30;
  const double share = total_ > 0 ? std::clamp(double(done_) / double(total_), 0.0, 1.0) : 0.0;
  std::string amount = fmt::format("{}/{}", done_, total_);
  if (unit_ == Unit::Bytes) amount = megabytes(done_, total_);
  if (unit_ == Unit::Transfer) {
    const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    amount = transfer_state(done_, total_, done_ - first_, seconds);
  }
  if (!terminal_) return tell(Stream::Stderr, "{} {:.0f} % {}\n", label_, share * 100, amount);
  const int full = static_cast<int>(share * kWidth);
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < full ? "━" : "╌";
  tell(Stream::Stderr, "\r\033[K{} {} {:3.0f} % {}", label_, bar, share * 100, amount);
}

std::string transfer_state(int64_t done, int64_t total, int64_t fresh, double seconds) {
  std::string text = total > 0 ? megabytes(done, total) : fmt::format("{:.1f} MB", double(done) / 1e6);
  if (fresh <= 0 || seconds <= 0) return text;
  const double rate = double(fresh) / seconds;
  text += fmt::format(" {:.1f} MB/s", rate / 1e6);
  if (total <= done) return text;
  const auto left = static_cast<int64_t>(std::min(double(total - done) / rate + 0.5, 360000.0));  // at most 100 hours
  const int64_t minutes = left / 60 % 60, hours = left / 3600;
  return text + (hours > 0 ? fmt::format(" {}:{:02}:{:02} left", hours, minutes, left % 60)
                           : fmt::format(" {}:{:02} left", minutes, left % 60));
}

}  // namespace millrace
