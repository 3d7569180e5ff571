// Ops that touch each element of their rows once or twice: when to share the rows among threads, and what they cost.
#pragma once

#include "base/function_ref.h"
#include "kernels/kernel.h"

namespace millrace {

// Calls body(begin, end) over all rows: on the caller alone where a parallel region would cost more than it saves.
void for_rows(const Executor& executor, int64_t rows, int64_t elements_per_row,
              FunctionRef<void(int64_t, int64_t)> body);

// Microseconds of a vectorized op that moves this many bytes, most of them through the caches.
double row_work_us(int64_t elements, double bytes_per_element, const Hardware& hardware);

// The same for a reference, which goes element by element on one thread.
double scalar_work_us(int64_t elements);

}  // namespace millrace
