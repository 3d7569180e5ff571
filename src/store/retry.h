// Retries transient failures: broken connections and busy servers.
#pragma once

#include <cstdint>
#include <functional>

#include "base/function_ref.h"

namespace millrace {

// Runs `attempt` until it ends without a TransientError, with growing pauses. Rethrows the error after several attempts
// in a row during which `achieved` (for example bytes on disk) did not grow.
void with_retries(const std::function<bool()>& cancelled, FunctionRef<uint64_t()> achieved,
                  FunctionRef<void()> attempt);

}  // namespace millrace
