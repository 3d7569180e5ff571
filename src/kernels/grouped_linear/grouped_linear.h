// A linear layer whose matrix each row chooses among many: the experts of a mixture.
//
// Two forms cover a feed-forward of experts. Without `sum` each pair gets a row of its own: y[p] = W[g] x[row] + b[g],
// or act(gate) * up of it. With `sum` the pairs of a row are added up: y[row] += sum of w[p] (W[g] x[p] + b[g]), in the
// order of the row's choices, so that the same batch gives the same bits.
#pragma once

#include <span>
#include <string>

#include "kernels/activation/kind.h"
#include "kernels/grouped_linear/routing.h"
#include "kernels/linear/linear.h"

namespace millrace {

// Matrices of one shape and format. Each is stored as a linear layer of its own would be.
struct GroupedWeights {
  DType format = DType::F32;
  int64_t groups = 0, n = 0, k = 0;
  const LinearLayout* layout = nullptr;
  // [groups], in host memory. In the CPU's layout of file rows [2 groups]: all gates, then all ups, since files store
  // them apart.
  std::span<const std::byte* const> data;
  size_t stride = 0;  // bytes from one group to the next; 0: groups lie apart (only on the CPU)
};

struct GroupedLinearProblem {
  DType format = DType::F32;
  std::string_view layout;  // name of a LinearLayout
  Precision precision = Precision::Fast;
  int64_t groups = 0, n = 0, k = 0;
  int64_t rows = 0, per_row = 1;  // pairs: rows * per_row
  DType x = DType::F32;
  bool gated = false;  // the first n / 2 rows of a matrix are gate, the others up
  bool sum = false;
  bool invariant = false;  // one linear kernel for every number of rows; `rows` still bounds the workspace
  int64_t all_groups = 0;  // that rows choose among, if this problem computes only some of them; 0: it computes all
  bool by_head = false;    // row r chooses group r % groups (kernels/head_routing)

  friend bool operator==(const GroupedLinearProblem&, const GroupedLinearProblem&) = default;
  GroupedLinearProblem bucketed() const;  // rounds rows up to their bucket; a bucket shares one plan
  int64_t pairs() const { return rows * per_row; }
  // Groups that rows choose on average, and pairs of these groups, if all groups are equally likely.
  double expected_active() const;
  double expected_pairs() const;
};
std::string to_string(const GroupedLinearProblem& problem);

struct GroupedLinearArgs {
  Matrix x;  // [rows, k]; with `sum` [pairs, k]
  const GroupedWeights* weights = nullptr;
  const float* bias = nullptr;  // [groups][n] or null
  Routing routing;
  bool gated = false;
  Activation activation = Activation::Silu;  // of gate
  SwigluClamp clamp;                         // of Activation::ClampedSwiglu
  bool sum = false;
  bool invariant = false;  // a row of y may not depend on the other rows of x
  Matrix y;                // [pairs, n]; gated [pairs, n / 2]; with `sum` [rows, n], which is added to
  // Layers of heads on a GPU: a second copy of x, complete when the preceding kernel lets this one start, so that a
  // kernel may read it before it waits. [rows / groups, groups * any], x being the first k columns of each head's part;
  // no columns: there is none.
  Matrix early_x;
};

struct GroupedLinearOp {
  static constexpr std::string_view kName = "grouped_linear";
  using Problem = GroupedLinearProblem;
  using Args = GroupedLinearArgs;

  static KernelList<GroupedLinearOp> cpu();  // best first where estimates tie
  static KernelList<GroupedLinearOp> cuda();
  static const Kernel<GroupedLinearOp>* reference();  // scalar, file rows; every kernel is tested against it
};

}  // namespace millrace
