#include "kernels/linear/linear.h"

#include "kernels/linear/rows/rows.h"
#include "kernels/linear/rows8/kernel.h"
#include "kernels/linear/rows8/rows8.h"
#if defined(__aarch64__)
#include "kernels/linear/rows/arm/half_rows.h"
#include "kernels/linear/rows8/arm/arm.h"
#elif defined(__x86_64__)
#include "kernels/linear/rows8/x86/x86.h"
#endif

namespace millrace {
namespace {

std::span<const Rows8Kernel> rows8_kernels() {
  static const std::vector<Rows8Kernel> kernels = [] {
    std::vector<Rows8Kernel> all;
#if defined(__aarch64__)
    for (const auto& method : bf16_methods()) all.emplace_back(method);
    for (const auto& method : i8mm_methods()) all.emplace_back(method);
    for (const auto& method : dotprod_methods()) all.emplace_back(method);
    for (const auto& method : neon_methods()) all.emplace_back(method);
#elif defined(__x86_64__)
    for (const auto& method : amx_methods()) all.emplace_back(method);
    for (const auto& method : vnni_methods()) all.emplace_back(method);
    for (const auto& method : avx2_methods()) all.emplace_back(method);
#endif
    return all;
  }();
  return kernels;
}

}  // namespace

std::vector<const LinearLayout*> LinearOp::cpu_layouts() { return {&rows8_layout(), &rows_layout()}; }

std::span<const PieceKernel* const> piece_kernels() {
  static const std::vector<const PieceKernel*> kernels = [] {
    std::vector<const PieceKernel*> all;
    for (const auto& kernel : rows8_kernels()) all.push_back(&kernel);
    for (const auto* kernel : plain_linear_kernels()) all.push_back(kernel);
    for (const auto* kernel : exact_linear_kernels()) all.push_back(kernel);
    return all;
  }();
  return kernels;
}

KernelList<LinearOp> LinearOp::cpu() {
  KernelList<LinearOp> all;
  for (const auto& kernel : rows8_kernels()) all.push_back(&kernel);
#if defined(__aarch64__)
  all.push_back(fhm_linear());
  all.push_back(fp16_linear());
#endif
  for (const auto* kernel : plain_linear_kernels()) all.push_back(kernel);
  for (const auto* kernel : exact_linear_kernels()) all.push_back(kernel);
  all.push_back(LinearOp::reference());
  return all;
}

}  // namespace millrace
