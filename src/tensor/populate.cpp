#include "tensor/populate.h"

#include <sys/mman.h>

#include "base/thread_pool.h"

namespace millrace {

void populate(std::byte* data, size_t bytes, ThreadPool& pool) {
  constexpr int kPopulateWrite = 23;             // MADV_POPULATE_WRITE, which older headers lack
  constexpr int64_t kPiece = int64_t{16} << 20;  // a multiple of small and huge pages
  pool.parallel_for(static_cast<int64_t>(bytes), kPiece, [&](int64_t begin, int64_t end) {
    ::madvise(data + begin, static_cast<size_t>(end - begin), kPopulateWrite);
  });
}

}  // namespace millrace
