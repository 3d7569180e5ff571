// The tables of one step in GPU memory, for the tests of ops with recurrent state.
#pragma once

#include <algorithm>

#include "cuda/support.h"
#include "kernels/attention/attention.h"

namespace millrace {

struct GpuSlices {
  explicit GpuSlices(const std::vector<SequenceSlice>& slices) : rows(host_rows(slices)), slots(host_slots(slices)) {
    for (const auto& s : slices) longest = std::max(longest, s.rows);
  }
  SliceTables tables() const {
    SliceTables tables;
    tables.slices = rows.as<SliceTables::Slice>();
    tables.slots = slots.as<int32_t>();
    tables.longest_slice = longest;
    return tables;
  }
  GpuBytes rows, slots;
  int32_t longest = 0;

 private:
  static std::vector<SliceTables::Slice> host_rows(const std::vector<SequenceSlice>& slices) {
    std::vector<SliceTables::Slice> all;
    for (const auto& s : slices) all.push_back({s.first_row, s.rows, s.past, s.past + s.rows});
    return all;
  }
  static std::vector<int32_t> host_slots(const std::vector<SequenceSlice>& slices) {
    std::vector<int32_t> all;
    for (const auto& s : slices) all.push_back(s.slot);
    return all;
  }
};

}  // namespace millrace
