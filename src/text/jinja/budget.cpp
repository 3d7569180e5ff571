#include "text/jinja/budget.h"

#include <limits>

#include "text/jinja/template_error.h"

namespace millrace::jinja {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

struct Meter {
  int64_t steps_left = kUnlimited;
  int64_t memory_left = kUnlimited / 2;  // half, so that refunds for values from before the budget do not overflow
  int64_t text_limit = int64_t{64} << 20;
  int depth = 0;
  int depth_limit = 1200;
};

thread_local Meter meter;

}  // namespace

Budget::Budget(const RenderLimits& limits) {
  meter = {.steps_left = limits.steps,
           .memory_left = limits.memory,
           .text_limit = limits.text,
           .depth = 0,
           .depth_limit = limits.depth};
}

Budget::~Budget() { meter = Meter(); }

void Budget::spend(int64_t steps) {
  meter.steps_left -= steps;
  if (meter.steps_left < 0) fail_template("the template takes too long: more than its limit of steps");
}

void Budget::check_text(size_t bytes) {
  if (bytes > static_cast<size_t>(meter.text_limit)) {
    fail_template("a text of more than {} bytes is too long", meter.text_limit);
  }
}

void Budget::enter() {
  if (meter.depth >= meter.depth_limit) fail_template("nested or recursing too deeply");
  ++meter.depth;
}

void Budget::leave() { --meter.depth; }

void Budget::claim(int64_t bytes) {
  if (bytes > meter.memory_left) fail_template("the template needs too much memory");
  meter.memory_left -= bytes;
}

void Budget::refund(int64_t bytes) noexcept { meter.memory_left += bytes; }

}  // namespace millrace::jinja
