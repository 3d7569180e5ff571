#include "store/retry.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/log.h"
#include "store/http.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

constexpr int kFruitlessAttempts = 4;

void pause(milliseconds length, const std::function<bool()>& cancelled) {
  for (milliseconds slept{0}; slept < length; slept += milliseconds(50)) {
    if (cancelled && cancelled()) fail(ErrorKind::Cancelled, "stopped");
    std::this_thread::sleep_for(milliseconds(50));
  }
}

}  // namespace

void with_retries(const std::function<bool()>& cancelled, FunctionRef<uint64_t()> achieved,
                  FunctionRef<void()> attempt) {
  uint64_t best = achieved();
  for (int fruitless = 0;;) {
    try {
      return attempt();
    } catch (const TransientError& e) {
      fruitless = achieved() > best ? 1 : fruitless + 1;
      best = std::max(best, achieved());
      if (fruitless >= kFruitlessAttempts) throw;
      log().info("{}; trying again", e.what());
    }
    pause(milliseconds(250) * (1 << fruitless), cancelled);
  }
}

}  // namespace millrace
