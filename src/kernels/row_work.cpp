#include "kernels/row_work.h"

#include <algorithm>

#include "base/thread_pool.h"

namespace millrace {
namespace {

constexpr int64_t kElementsWorthARegion = 1 << 15;  // about 5 us of streaming on one core

}  // namespace

void for_rows(const Executor& executor, int64_t rows, int64_t elements_per_row,
              FunctionRef<void(int64_t, int64_t)> body) {
  ThreadPool* pool = executor.pool;
  if (pool == nullptr || pool->size() == 1 || rows == 1 || rows * elements_per_row < kElementsWorthARegion) {
    if (rows > 0) body(0, rows);
    return;
  }
  pool->parallel_for(rows, std::max<int64_t>(1, rows / (4 * pool->size())), body);
}

double row_work_us(int64_t elements, double bytes_per_element, const Hardware& hardware) {
  const double bytes_per_us = hardware.ceilings.cache_gbs * 1e3;
  const double all_threads = static_cast<double>(elements) * bytes_per_element / bytes_per_us;
  if (elements < kElementsWorthARegion) return 0.1 + all_threads * hardware.threads;
  return hardware.ceilings.region_us + all_threads;
}

double scalar_work_us(int64_t elements) { return 0.1 + static_cast<double>(elements) * 4e-3; }

}  // namespace millrace
