// Low-rank adapters of a linear layer: y[row] += B (A x[row]) with the matrices of the row's own adapter. Rows of many
// adapters, and rows without one, are mixed in a batch.
//
// A layer may be several matrices of the file stacked along its outputs (q, k and v). Each is a part with a rank of its
// own: the A of all parts are stacked, and each B adds to the columns of its part.
//
// A result does not depend on the other rows: each dot product runs over k in the same order for any batch that a
// kernel runs. Problem::invariant asks for a kernel of all batches.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

// The matrices of one adapter for one layer, in device memory.
struct LoraWeights {
  static constexpr int kMostParts = 4;
  static constexpr int64_t kMostRank = 256;  // of a part

  struct Part {
    int32_t column = 0, cols = 0;  // of y
    int32_t first = 0, rank = 0;   // rows of A
    int64_t at = 0;                // offset of the part's B, in elements
    // Gate and up of some GPU layouts alternate in groups of this many columns; 0: the columns are adjacent.
    int32_t group = 0;
    constexpr int32_t column_of(int32_t c) const {
      return column + (group == 0 ? c : c / group * 2 * group + c % group);
    }
  };
  const std::byte* a = nullptr;  // [rank][k]; of an embedding [k][rank]; null: no adapter, and the rest is 0
  const std::byte* b = nullptr;  // the parts' transposed B, [part.rank][part.cols] each; the scale is included
  int32_t rank = 0;              // sum over the parts
  int32_t parts = 0;
  Part part[kMostParts];
  // Experts of a mixture (kernels/grouped_lora) have the same parts. Elements from one expert's matrices to the next
  // one's.
  int64_t a_step = 0, b_step = 0;
  // [experts]: index of an expert's matrices; -1: it has none. In device memory; null: all have them, in order.
  const int32_t* place = nullptr;
  // Host only.
  int64_t place_of(int64_t expert) const { return place == nullptr ? expert : place[expert]; }
};

// The matrices of an adapter; null: it has none. Host only.
inline const LoraWeights* found_in(const LoraWeights* table, int32_t adapter) {
  const LoraWeights* found = adapter >= 0 ? table + adapter : nullptr;
  return found != nullptr && found->a != nullptr ? found : nullptr;
}

struct LoraOp {
  static constexpr std::string_view kName = "lora";
  struct Problem {
    DType format = DType::F32;  // of A and B
    int64_t rows = 0, n = 0, k = 0;
    int64_t parts = 1;
    bool embedding = false;    // x is a one-hot row, given as an id: A x is a row of A
    bool alternating = false;  // parts have groups
    bool invariant = false;    // a result may not depend on the number of rows, either
    friend bool operator==(const Problem&, const Problem&) = default;
    int64_t most_rank() const { return parts * LoraWeights::kMostRank; }
  };
  struct Args {
    DType format = DType::F32;
    Matrix x;                            // [rows, k]; no columns: `ids`
    std::span<const int32_t> ids;        // [rows], as in EmbeddingOp
    const int32_t* chosen = nullptr;     // tokens of negative ids: chosen[~id]
    int64_t parts = 1;                   // as in the problem
    float scale = 1;                     // of B A x
    const int32_t* adapters = nullptr;   // [rows]: index in `table`; -1: none
    const LoraWeights* table = nullptr;  // of this layer, by adapter; in device memory
    Matrix y;                            // [rows, n]
    int64_t most_rank = 0;               // largest sum of ranks of an adapter for this layer; 0: unknown
    // Of the layer whose adapters are computed next; null: unknown. A kernel may fetch its A ahead, [rank][next_k].
    const LoraWeights* next = nullptr;
    int64_t next_k = 0;
    // Second half of a shared norm or null: x is NormAhead::scaled of LinearOp, and the kernel divides A x by the root
    // mean square of the row. Only for kernels with shares_between().
    const float* squares = nullptr;  // [rows][k / NormAhead::kPart]
    float epsilon = 0;
    // If set, the kernel also computes feed = silu(gate) * up of all rows, with the adapters added, and leaves y as it
    // is: y has the columns of gate and up in groups of gate_group, as LinearLayout::gate_group() says. Only for
    // kernels with takes_along().
    Matrix feed;  // [rows, n / 2]
    int32_t gate_group = 0;

    // Host only. `chosen` is -1 if the sequence ended; its output is unused then.
    int32_t id(int64_t row) const {
      const int32_t id = ids[static_cast<size_t>(row)];
      return id >= 0 ? id : std::max(0, chosen[~id]);
    }
    // Host only: the matrices of a row; null: none.
    const LoraWeights* of_row(int64_t row) const { return found_in(table, adapters[row]); }
  };

  static KernelList<LoraOp> cpu();  // best first where estimates tie
  static KernelList<LoraOp> cuda();
  static const Kernel<LoraOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const LoraOp::Problem& problem);

}  // namespace millrace
