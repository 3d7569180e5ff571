// A step's batch where its kernels run. On a GPU all of it travels in one small copy to addresses that depend on the
// step's shape alone, so that a recorded step finds the next batch where it found the last one. The host fills one of
// two slots while a copy from the other may be under way.
#pragma once

#include <vector>

#include "hardware/device.h"
#include "models/batch.h"
#include "tensor/arena.h"

namespace millrace {

class BatchTables {
 public:
  struct Sizes {                                                 // of the largest step
    int64_t rows = 0, sequences = 0, logit_rows = 0, pages = 0;  // pages: of one sequence
  };
  static size_t bytes(const Sizes& sizes);
  BatchTables(const Sizes& sizes, int block_size, Device& device);

  // `pages`: room for the block table of each sequence; at least what the longest of them has. The batch is there for
  // kernels that are enqueued after send().
  PlacedBatch place(const Batch& batch, int64_t pages, int slot = 0);
  void send();  // what was placed last

 private:
  void fill_rows(const Batch& batch, int32_t* positions, int32_t* horizons, int32_t* row_slots) const;

  Device& device_;
  int block_size_;
  Arena host_, placed_;
  std::byte *host_data_[Device::kStepsAtOnce], *placed_data_;
  int slot_ = 0;     // and
  size_t used_ = 0;  // bytes of the batch placed last
};

}  // namespace millrace
