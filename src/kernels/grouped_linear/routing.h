// The choice of a mixture's router: which matrices each row of a batch is multiplied with. All arrays lie in the memory
// of the device that computes, because the router is an op of the same step.
#pragma once

#include <cstdint>

namespace millrace {

// A pair is one (row, choice): pair p belongs to row p / per_row.
struct Routing {
  int64_t rows = 0, per_row = 1;
  int64_t groups = 0;          // matrices to choose among
  int32_t* chosen = nullptr;   // [rows * per_row]: group of each pair; a row's groups are distinct
  float* weights = nullptr;    // [rows * per_row]: factor of each pair in the row's weighted sum
  int32_t* order = nullptr;    // [rows * per_row]: pairs sorted by group, ascending within a group
  int32_t* offsets = nullptr;  // [groups + 1]: group g has the pairs order[offsets[g]] .. order[offsets[g + 1] - 1]
  int64_t first = 0;           // `chosen` counts groups from here on
  bool partial = false;        // some pairs chose other groups: kernels skip them, and their rows of y stay as they are
  // On a GPU: the routing was complete before the preceding kernel started, so a kernel may read it, and fetch the
  // weights of the chosen groups, before it waits for that kernel.
  bool settled = false;

  int64_t pairs() const { return rows * per_row; }
  // Groups begin .. begin + count - 1 alone, for a device that holds no others.
  Routing part(int64_t begin, int64_t count) const {
    Routing some = *this;
    some.groups = count;
    some.offsets += begin;
    some.first += begin;
    some.partial |= count < groups;
    return some;
  }
};

}  // namespace millrace
