// Weights as the ops take them: vectors and linear layers in device memory.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/grouped_linear/grouped_linear.h"

namespace millrace {

// An f32 vector. An architecture declares it, Weights::pack() fills it. A dry pass checks only whether it exists.
struct Vector {
  static constexpr float kNotLoaded = std::numeric_limits<float>::quiet_NaN();
  const float* data = &kNotLoaded;
  int64_t n = 0;
};

// One or more weight matrices whose outputs are columns of one matrix. q, k and v of different formats stay separate
// parts.
struct Linear {
  struct Part {
    LinearWeights weights;
    // (rows, kernel) for each bucket of rows, ascending. Dry passes fill it before the first step.
    mutable std::vector<std::pair<int64_t, const LinearKernel*>> plan;
    // Batch-invariant plans: fewer rows than least_rows are padded to least_rows (buffers have room for them). With
    // tile_rows > 0 rows are padded to whole tiles.
    mutable int64_t least_rows = 1, tile_rows = 0;
  };
  int64_t n = 0, k = 0;
  bool gated = false;    // one part holds gate and up; the output is silu(gate) * up, [rows, n / 2]
  bool on_host = false;  // the weights and the bias lie in host memory, and the CPU computes the layer (host_side.h)
  std::vector<Part> parts;
  const Vector* bias = nullptr;   // [n] or null
  int site = -1;                  // in AdapterTable; -1: adapters cannot change this layer
  int site_parts = 0;             // matrices of the file, each with an adapter of its own
  const Linear* apart = nullptr;  // of a gated layer: the same weights without the gate, for rows with adapters
  // As Grouped::streamed and Grouped::stream_plan. A stage of the device holds all parts.
  const Linear* streamed = nullptr;
  mutable std::vector<std::pair<int64_t, bool>> stream_plan;
};

// Matrices of one shape, one for each expert of a mixture. With `gated` a matrix holds gate, then up, and the output is
// act(gate) * up; with `sum` the weighted outputs of a row's experts are added to y (kernels/grouped_linear).
struct Grouped {
  GroupedWeights weights;              // its pointers are those of `each`
  std::vector<const std::byte*> each;  // [groups]; null until Weights::pack()
  int64_t first = 0, all_groups = 0;   // groups `first` and following, of all_groups in the mixture
  const Grouped* rest = nullptr;       // the groups behind these, in host memory; null: there are none
  // Of groups in host memory: the same groups in the device's layout, in pinned memory, which long prompts copy to the
  // device slice by slice (Ops::experts). `weights` describes a slice, `each` has all groups. Null: never copied.
  const Grouped* streamed = nullptr;
  int64_t per_row = 1;  // matrices that each row chooses
  bool gated = false, sum = false;
  bool of_heads = false;  // a matrix for each attention head, not for each expert: every token uses all of them
  Activation activation = Activation::Silu;  // of gate
  bool on_host = false;                      // as Linear::on_host
  SwigluClamp clamp;                         // of Activation::ClampedSwiglu
  const Vector* bias = nullptr;              // [groups][n] or null
  int site = -1, site_parts = 0;             // as Linear::site; site_parts: matrices of each expert
  const Grouped* apart = nullptr;            // as Linear::apart
  // (rows, kernel) for each bucket of rows, ascending. Dry passes fill it before the first step.
  mutable std::vector<std::pair<int64_t, const Kernel<GroupedLinearOp>*>> plan;
  double share_of_a_row() const { return double(per_row) / double(all_groups); }  // of all matrices, that a row reads
  // If `streamed`: (rows, whether a step of so many rows copies the groups to the device) for each bucket of rows.
  mutable std::vector<std::pair<int64_t, bool>> stream_plan;
};

}  // namespace millrace
