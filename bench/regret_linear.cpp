// Linear layers of shapes that the estimates were not fitted on.
#include <cinttypes>
#include <cstdio>

#include "base/error.h"
#include "linear_cases.h"
#include "regret.h"

namespace millrace {
namespace {

constexpr LinearShape kCpuShapes[] = {{1152, 896}, {4864, 896}, {896, 4864}, {2560, 2560}, {1024, 3072}};
constexpr int64_t kCpuRows[] = {1, 2, 3, 4, 5, 6, 8, 12, 13, 16, 32, 48, 64, 128, 256};
constexpr LinearShape kGpuShapes[] = {{4608, 3584}, {3584, 3584}, {18944, 3584}, {3584, 18944}, {7168, 5120}};
constexpr int64_t kGpuRows[] = {1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024};

LinearShape parse_shape(const std::string& text) {
  LinearShape shape{};
  char rest = 0;
  if (std::sscanf(text.c_str(), "%" SCNd64 "x%" SCNd64 "%c", &shape.n, &shape.k, &rest) != 2 || shape.n < 1 ||
      shape.k < 1)
    fail(ErrorKind::Usage, "--shapes {}: expected NxK", text);
  return shape;
}

std::vector<LinearShape> shapes_of(const RegretOptions& options, bool host) {
  std::vector<LinearShape> all;
  for (const auto& text : options.shapes) all.push_back(parse_shape(text));
  if (!all.empty()) return all;
  const auto held_out = host ? std::span(kCpuShapes) : std::span<const LinearShape>(kGpuShapes);
  return {held_out.begin(), held_out.end()};
}

// Whether models of this format use the layout.
bool is_usual(const LinearLayout& layout, DType format, bool host) {
  return host ? is_quantized(format) == (layout.name() == "rows8") : layout.name() != "cuda_rows";
}

}  // namespace

Regrets RegretSearch::search_linear(DType format) {
  Regrets regrets;
  const bool host = device_->is_host();
  const Planner<LinearOp> planner(kernels_.of<LinearOp>(), hardware(), nullptr, "");
  const DType x = host ? DType::F32 : is_quantized(format) ? DType::BF16 : format;
  for (const LinearShape shape : shapes_of(options_, host)) {
    if (shape.k % info(format).block != 0) continue;
    for (const auto* layout : kernels_.layouts) {
      if (!layout->accepts(format, shape.n, shape.k, hardware()) || !is_usual(*layout, format, host)) continue;
      ColdWeights weights(format, shape.n, shape.k, *layout, *device_, pool_);
      for (const int64_t m : host ? std::span<const int64_t>(kCpuRows) : std::span<const int64_t>(kGpuRows)) {
        if (m > options_.most_rows) break;
        const LinearProblem problem{format, layout->name(), Precision::Fast, shape.n, shape.k, m, x};
        add_problem<LinearOp>(
            planner, problem, [&](const auto& some) { return quick_.time(problem, some, weights); },
            [&](const auto& all) { return thorough_.time(problem, all, weights); }, regrets);
      }
    }
  }
  return regrets;
}

}  // namespace millrace
