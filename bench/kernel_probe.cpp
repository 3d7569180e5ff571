// Checks and times one kernel on a few problems: kernel_probe KERNEL THREADS FORMAT:NxK:M ...
//
// scripts/search-kernels links it with kernels of other block sizes. Prints microseconds, one line per problem; fails
// if a result differs from the reference.
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/thread_pool.h"
#include "dataflow/kernel_timer.h"
#include "hardware/this_machine.h"
#include "linear_cases.h"
#include "linear_problem.h"

namespace millrace {
namespace {

std::vector<float> product(const LinearKernel& kernel, const LinearWeights& weights, const LinearProblem& p,
                           std::vector<float>& x, const Hardware& hardware, ThreadPool& pool) {
  std::vector<float> y(static_cast<size_t>(p.m * p.n), NAN);
  Arena workspace("workspace", Arena::padded(kernel.workspace_bytes(p, hardware) + 64));
  LinearArgs args;
  args.x = {DType::F32, p.m, p.k, p.k, reinterpret_cast<std::byte*>(x.data())};
  args.y = {DType::F32, p.m, p.n, p.n, reinterpret_cast<std::byte*>(y.data())};
  args.weights = &weights;
  kernel.run(args, {&pool, workspace.take(workspace.capacity())});
  return y;
}

// Odd sizes, to cover partial tiles.
void check(const LinearKernel& kernel, const LinearProblem& like, const LinearLayout& layout, const Hardware& hardware,
           ThreadPool& pool) {
  LinearProblem p = like;
  p.n = 197, p.k = 3 * 256, p.m = like.m == 1 ? 1 : 39;
  std::mt19937 random(std::random_device{}());
  const auto rows = random_weights(p.format, p.n, p.k, random);
  auto x = random_activations(p.m, p.k, random);
  const WeightView view{p.format, p.n, p.k, rows.data()};
  Arena packed("packed", Arena::padded(layout.bytes(p.format, p.n, p.k) + 64));
  LinearWeights weights{p.format, p.n, p.k, &layout, view.data};
  if (!layout.in_place(p.format, p.n, p.k)) {
    std::byte* data = packed.take(packed.capacity());
    layout.pack({&view, 1}, data, pool);
    weights.data = data;
  }
  const LinearWeights plain{p.format, p.n, p.k, cpu_kernels().layouts.back(), view.data};
  const auto got = product(kernel, weights, p, x, hardware, pool);
  const auto want = product(find_kernel("reference"), plain, p, x, hardware, pool);
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) error += std::pow(got[i] - want[i], 2), norm += std::pow(want[i], 2);
  if (!(error <= 4e-4 * norm)) fail(ErrorKind::BadFile, "{} is wrong: {}", kernel.name(), to_string(p));
}

void probe(const LinearKernel& kernel, const char* text, const Hardware& hardware, ThreadPool& pool) {
  LinearProblem problem = read_problem(text);
  const auto& layout = find_layout(problem, kernel, hardware);
  check(kernel, problem, layout, hardware, pool);
  const auto device = host_device(hardware);
  ColdWeights weights(problem.format, problem.n, problem.k, layout, *device, pool);
  const LinearKernel* only[] = {&kernel};
  const auto times = KernelTimer(*device, pool, {40, 0.03, 10, 2}).time(problem, only, weights);
  fmt::print("{} {:.2f}\n", text, times.front().us);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  try {
    if (argc < 4) fail(ErrorKind::Usage, "kernel_probe KERNEL THREADS FORMAT:NxK:M ...");
    const Hardware hardware = this_machine(std::atoi(argv[2]));
    ThreadPool pool(hardware.threads);
    for (int i = 3; i < argc; ++i) probe(find_kernel(argv[1]), argv[i], hardware, pool);
  } catch (const Error& error) {
    fmt::print(stderr, "kernel_probe: {}\n", error.what());
    return 1;
  }
}
