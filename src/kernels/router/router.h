// The router of a mixture of experts: from a score per expert to the experts of each row, their weights, and the order
// of the (row, expert) pairs by expert that grouped kernels need.
#pragma once

#include <string>

#include "kernels/grouped_linear/routing.h"
#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

enum class Scoring : uint8_t {
  Softmax,          // over all experts
  Sigmoid,          // of each expert
  SoftmaxOfChosen,  // the largest logits are chosen; the softmax is over them alone
  SparseMixer,      // each choice is an argmax; its weight is a softmax over the experts within a margin of the best
};

struct RouterSettings {
  Scoring scoring = Scoring::Softmax;
  int per_row = 1;  // experts of each row
  // Experts are chosen from the best `kept_groups` of `expert_groups` equal groups. A group counts as its best expert,
  // or as the sum of its two best.
  int expert_groups = 1, kept_groups = 1;
  bool groups_by_two_best = false;
  // Weights are divided by max(their sum, least_sum) + sum_epsilon.
  bool renormalize = false;
  float least_sum = 0, sum_epsilon = 0;
  float scale = 1;   // factor of all weights, applied last
  float margin = 0;  // SparseMixer: relative distance to the best logit
  // Shared experts: groups behind the experts, which every row has behind its choices. Their weight is 1 or, with
  // gates_shared, the sigmoid of a logit behind those of the experts.
  int shared = 0;
  bool gates_shared = false;

  int pairs_of_row() const { return per_row + shared; }
  friend bool operator==(const RouterSettings&, const RouterSettings&) = default;
};

struct RouterOp {
  static constexpr std::string_view kName = "router";
  struct Problem {
    RouterSettings settings;
    int64_t experts = 0, rows = 0;  // experts to choose among, without shared ones
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    RouterSettings settings;
    Matrix logits;                        // [rows, experts] f32; with gates_shared [rows, experts + 1]
    const float* choice_bias = nullptr;   // [experts]: added to the scores for the choice only; null: none
    const float* expert_scale = nullptr;  // [experts]: factor of an expert's weight, after renormalization; null: none
    Routing routing;                      // written; of equal scores the lower index is chosen
  };

  static constexpr int64_t kMostGroups = 512;  // of the GPU's kernels, with shared experts

  static KernelList<RouterOp> cpu();
  static KernelList<RouterOp> cuda();
  static const Kernel<RouterOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const RouterOp::Problem& problem);

// Fills order and offsets of a routing from its chosen groups, on one thread.
void sort_by_group(const Routing& routing);

}  // namespace millrace
