// Copies a step's batch to the device. On a GPU all tables go in one small copy, to addresses that depend only on the
// shape of the step, so that a recorded step can be replayed on the next batch. Two host slots: one is filled while the
// copy from the other may still be running.
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

  // `pages`: columns of the block tables, at least the number of pages of the longest sequence. Kernels enqueued after
  // send() may read the batch.
  PlacedBatch place(const Batch& batch, int64_t pages, int slot = 0);
  void send();  // copies the batch placed last

  int32_t usual_adapter = -1;  // of sequences without one (AdapterTable slot); -1: none

 private:
  void fill_rows(const Batch& batch, int32_t* positions, int32_t* horizons, int32_t* types, int32_t* row_slots) const;

  Device& device_;
  int block_size_;
  Arena host_, placed_;
  std::byte *host_data_[Device::kStepsAtOnce], *placed_data_;
  int slot_ = 0;     // slot and
  size_t used_ = 0;  // bytes of the batch placed last
};

}  // namespace millrace
