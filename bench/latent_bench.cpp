// Times latent attention of prompt chunks in its absorbed and its materialised form, on one thread:
//   latent_bench HEADS PLAIN ROTARY VALUE LATENT ROWS:CONTEXT...
// The forms run in turn. Prints the median CPU time of each, which other processes disturb little, and its estimate.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>

#include "attention_cases.h"
#include "base/thread_pool.h"
#include "experts.h"
#include "hardware/this_machine.h"
#include "kernels/latent_prompt/latent_prompt.h"
#include "tensor/arena.h"

namespace millrace {
namespace {

constexpr int kRounds = 5;
constexpr DType kWeights = DType::Q4_0, kCache = DType::F16;

template <class Op>
const Kernel<Op>& best(const KernelList<Op>& kernels, const typename Op::Problem& problem, const Hardware& hardware) {
  const Kernel<Op>* chosen = nullptr;
  for (const auto* kernel : kernels) {
    if (kernel->variant_of(problem, hardware) != nullptr || !kernel->can_run(problem, hardware)) continue;
    if (chosen == nullptr || kernel->estimate_us(problem, hardware) < chosen->estimate_us(problem, hardware))
      chosen = kernel;
  }
  return *chosen;
}

double cpu_ms(const std::function<void()>& work) {
  timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  work();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  return 1e3 * double(after.tv_sec - before.tv_sec) + 1e-6 * double(after.tv_nsec - before.tv_nsec);
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

void time_forms(const LatentPromptOp::Problem& p, const Hardware& hardware) {
  ThreadPool pool(1);
  Random random(1);
  AttentionCase of_latents{"latent", kCache, p.heads, 1, p.latent_dim + p.rotary_dim, p.block_size};
  of_latents.own_value_dim = p.latent_dim;
  of_latents.latent = true;
  of_latents.slices = {{static_cast<int>(p.context - p.rows), static_cast<int>(p.rows)}};
  AttentionBatch batch(of_latents, random);
  TestExperts keys(kWeights, p.heads, p.latent_dim, p.plain_dim, random);
  TestExperts values(kWeights, p.heads, p.value_dim, p.latent_dim, random);
  const LinearLayout& layout = *cpu_kernels().layouts.front();
  const GroupedWeights packed_keys = keys.packed(layout, pool), packed_values = values.packed(layout, pool);
  // A head is a row of grouped linear layers, so that these matrices have no spare columns.
  const auto memory_of = [](const Matrix& m) { return Arena::padded(static_cast<size_t>(m.rows * m.stride) * 4); };
  const auto shape = [&](int64_t cols) { return Matrix{DType::F32, p.rows, cols * p.heads, cols * p.heads, nullptr}; };
  Matrix plain = shape(p.plain_dim), q = shape(p.latent_dim + p.rotary_dim), sums = shape(p.latent_dim),
         out = shape(p.value_dim);
  Arena arena("activations", memory_of(plain) + memory_of(q) + memory_of(sums) + memory_of(out));
  for (Matrix* m : {&plain, &q, &sums, &out}) m->data = arena.take(memory_of(*m));
  for (const Matrix* m : {&plain, &q})
    std::generate_n(m->row<float>(0), m->rows * m->stride, [&] { return random.normal(); });
  const auto by_head = [&](const Matrix& m, int64_t cols) {
    return Matrix{DType::F32, m.rows * p.heads, cols, m.cols / p.heads, m.data};
  };
  TestRouting routing(p.rows * p.heads, p.heads, 1);
  HeadRoutingOp::reference()->run({routing.view()}, {});

  TestMatrix unused(1, 1);
  AttentionArgs attention = batch.args(unused);
  attention.q = q;
  const auto& to_latent = best(GroupedLinearOp::cpu(),
                               {.format = kWeights,
                                .layout = layout.name(),
                                .groups = p.heads,
                                .n = p.latent_dim,
                                .k = p.plain_dim,
                                .rows = p.rows * p.heads},
                               hardware);
  const auto& attend = best(AttentionOp::cpu(), batch.problem(), hardware);
  LatentPromptOp::Problem problem = p;
  KernelList<LatentPromptOp> forms = LatentPromptOp::cpu();
  forms.pop_back();
  const auto& materialised = best(forms, problem, hardware);
  const GroupedLinearOp::Problem largest{.format = kWeights,
                                         .layout = layout.name(),
                                         .groups = p.heads,
                                         .n = p.latent_dim,
                                         .k = p.latent_dim,
                                         .rows = p.rows * p.heads};
  Arena workspace("workspace", 64 + std::max({to_latent.workspace_bytes(largest, hardware),
                                              attend.workspace_bytes(batch.problem(), hardware),
                                              materialised.workspace_bytes(p, hardware)}));
  const Executor executor{&pool, workspace.take(workspace.capacity() - 64), nullptr, &hardware};
  const auto run_absorbed = [&] {
    to_latent.run({.x = by_head(plain, p.plain_dim),
                   .weights = &packed_keys,
                   .routing = routing.view(),
                   .y = by_head(q, p.latent_dim)},
                  executor);
    attention.out = sums;
    attend.run(attention, executor);
    to_latent.run({.x = by_head(sums, p.latent_dim),
                   .weights = &packed_values,
                   .routing = routing.view(),
                   .y = by_head(out, p.value_dim)},
                  executor);
  };
  const auto run_materialised = [&] {
    attention.out = out;
    materialised.run({attention, plain, p.plain_dim, p.plain_dim, p.value_dim, &packed_keys, &packed_values}, executor);
  };
  std::vector<double> absorbed_ms, materialised_ms;
  for (int i = 0; i < kRounds; ++i) {
    absorbed_ms.push_back(cpu_ms(run_absorbed));
    materialised_ms.push_back(cpu_ms(run_materialised));
  }
  fmt::print(
      "rows {:5} context {:6}: absorbed {:9.2f} ms (estimate {:9.2f}), {} {:9.2f} ms (estimate {:9.2f}): {:.2f}x\n",
      p.rows, p.context, median(absorbed_ms), LatentPromptOp::cpu().back()->estimate_us(p, hardware) / 1e3,
      materialised.name(), median(materialised_ms), materialised.estimate_us(p, hardware) / 1e3,
      median(absorbed_ms) / median(materialised_ms));
  std::fflush(stdout);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  if (argc < 7) return fmt::print(stderr, "latent_bench HEADS PLAIN ROTARY VALUE LATENT ROWS:CONTEXT...\n"), 2;
  const Hardware hardware = this_machine(1);
  for (int i = 6; i < argc; ++i) {
    LatentPromptOp::Problem p{.kv = kCache, .block_size = 64};
    p.heads = std::atoi(argv[1]), p.plain_dim = std::atoi(argv[2]), p.rotary_dim = std::atoi(argv[3]);
    p.value_dim = std::atoi(argv[4]), p.latent_dim = std::atoi(argv[5]);
    if (std::sscanf(argv[i], "%ld:%ld", &p.rows, &p.context) != 2 || p.context < p.rows) return 2;
    time_forms(p, hardware);
  }
}
