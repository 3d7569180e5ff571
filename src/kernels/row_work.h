// Threading and cost of ops that touch each element of their rows once or twice.
#pragma once

#include "base/function_ref.h"
#include "kernels/kernel.h"

namespace millrace {

// Calls body(begin, end) over all rows. Runs on the calling thread if a parallel region would cost more than it saves.
void for_rows(const Executor& executor, int64_t rows, int64_t elements_per_row,
              FunctionRef<void(int64_t, int64_t)> body);

// Microseconds for a vectorized op; most of its bytes come from the caches.
double row_work_us(int64_t elements, double bytes_per_element, const Hardware& hardware);

// Microseconds for a scalar reference on one thread.
double scalar_work_us(int64_t elements);

}  // namespace millrace
