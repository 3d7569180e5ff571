// Multi-head latent attention (MLA) of one prompt chunk in the materialised form: the latent rows of the context are
// expanded to a key and a value of each head, and the heads attend as usual.
//
// The absorbed form (models/latent_attention.h) multiplies latent + rotary + latent numbers for each query, head and
// position. This form multiplies plain + rotary + value, and latent * (plain + value) for each head and position to
// expand. So it pays for chunks of many rows, and the planner chooses by rows and context.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/grouped_linear/grouped_linear.h"

namespace millrace {

struct LatentPromptOp {
  static constexpr std::string_view kName = "latent_prompt";
  struct Problem {
    DType kv = DType::F32;
    Precision precision = Precision::Fast;
    int heads = 0, plain_dim = 0, rotary_dim = 0, value_dim = 0, latent_dim = 0, block_size = 0;
    int64_t rows = 0;     // of the chunk
    int64_t context = 0;  // cached tokens before the chunk, and its rows

    int query_dim() const { return plain_dim + rotary_dim; }
    double seen() const { return double(context) - double(rows) / 2; }  // positions that a row attends to on average
    Problem bucketed() const;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    // The arguments of the absorbed form for one sequence, whose tables come first; q has only its rotary parts.
    // `out` is [rows, heads * value_dim]. GPU: heads begin at multiples of eight elements.
    AttentionArgs attention;
    Matrix plain;                            // [rows, ...]: plain part of head h's query begins at h * plain_stride
    int64_t plain_stride = 0;                // elements
    int plain_dim = 0, value_dim = 0;        // of a head
    const GroupedWeights* keys = nullptr;    // [heads][latent, plain]: plain part of a key = latent row * matrix
    const GroupedWeights* values = nullptr;  // [heads][value, latent]
  };

  // Each list ends with the absorbed form, which only takes part in the ranking: where it wins, Ops runs its chain of
  // ops.
  static KernelList<LatentPromptOp> cpu();
  static KernelList<LatentPromptOp> cuda();
  static bool is_absorbed(const Kernel<LatentPromptOp>& kernel);
};
std::string to_string(const LatentPromptOp::Problem& problem);

}  // namespace millrace
