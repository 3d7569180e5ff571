// Tries again what may heal by itself: a connection that broke off, a server that was busy.
#pragma once

#include <cstdint>
#include <functional>

#include "base/function_ref.h"

namespace millrace {

// Runs `attempt` until it does not end in a TransientError, with growing pauses, and passes the error on after a
// handful of attempts in a row at which `achieved` did not grow.
void with_retries(const std::function<bool()>& cancelled, FunctionRef<uint64_t()> achieved,
                  FunctionRef<void()> attempt);

}  // namespace millrace
