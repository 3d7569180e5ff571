// Limits of one render. Templates come from untrusted model files, so steps, memory and recursion are bounded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::jinja {

struct RenderLimits {
  int64_t steps = 5'000'000;            // evaluated expressions, statements, comparisons and items
  int64_t memory = int64_t{256} << 20;  // bytes of all live values
  int64_t text = int64_t{64} << 20;     // bytes of one string, and of the whole output
  int depth = 1200;                     // nested expressions, statements and macro calls
};

// The budget of the current thread, active from construction to destruction. It is thread-local because comparison,
// formatting and JSON create values without access to an interpreter.
class Budget {
 public:
  explicit Budget(const RenderLimits& limits);
  ~Budget();
  Budget(const Budget&) = delete;

  static void spend(int64_t steps = 1);
  static void check_text(size_t bytes);
  static void enter();  // one level deeper; each enter() that returns needs a leave()
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

// The bytes of one value, refunded by the destructor.
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
