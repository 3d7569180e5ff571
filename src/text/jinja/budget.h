// What one render may cost. Templates come out of model files, so loops, memory and recursion are metered.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::jinja {

struct RenderLimits {
  int64_t steps = 5'000'000;            // expressions, statements, comparisons and items touched
  int64_t memory = int64_t{256} << 20;  // bytes of values alive at one time
  int64_t text = int64_t{64} << 20;     // bytes of one string, and of the whole output
  int depth = 1200;                     // nested expressions, statements and macro calls
};

// The meter of the current thread, running from construction to destruction. It is found through the thread rather than
// handed around because values are made in places (comparison, formatting, JSON) that know no interpreter.
class Budget {
 public:
  explicit Budget(const RenderLimits& limits);
  ~Budget();
  Budget(const Budget&) = delete;

  static void spend(int64_t steps = 1);
  static void check_text(size_t bytes);
  static void enter();  // one level deeper; every enter() that returns is matched by a leave()
  static void leave();
  static void claim(int64_t bytes);
  static void refund(int64_t bytes) noexcept;
};

class DepthGuard {
 public:
  DepthGuard() { Budget::enter(); }
  ~DepthGuard() { Budget::leave(); }
  DepthGuard(const DepthGuard&) = delete;
};

// Bytes held by one value, given back when the value dies.
class MemoryClaim {
 public:
  explicit MemoryClaim(size_t bytes = 0) { grow(bytes); }
  ~MemoryClaim() { Budget::refund(bytes_); }
  MemoryClaim(const MemoryClaim&) = delete;
  void grow(size_t bytes) {
    Budget::claim(static_cast<int64_t>(bytes));
    bytes_ += static_cast<int64_t>(bytes);
  }

 private:
  int64_t bytes_ = 0;
};

}  // namespace millrace::jinja
