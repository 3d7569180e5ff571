#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/grouped_linear/cuda/kernels.h"

namespace millrace {

KernelList<GroupedLinearOp> GroupedLinearOp::cuda() {
  KernelList<GroupedLinearOp> all{cuda_grouped_heads(), cuda_grouped_pairs()};
  for (const auto* kernel : cuda_grouped_tiles()) all.push_back(kernel);
  for (const auto* kernel : cuda_grouped_packed()) all.push_back(kernel);
  all.push_back(cuda_grouped_packed_pairs());
  for (const auto* kernel : cuda_grouped_packed_flat()) all.push_back(kernel);
  for (const auto* kernel : cuda_grouped_packed_stream()) all.push_back(kernel);
  all.push_back(cuda_grouped_prompt());
  all.push_back(cuda_grouped_packed_prompt());
  all.push_back(cuda_grouped_simple());
  return all;
}

}  // namespace millrace
