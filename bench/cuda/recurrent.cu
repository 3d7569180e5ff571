// Times the kernels of recurrent ops: a decode step of several sequences and prompts of one sequence, inside a graph,
// with states that exceed the L2 cache. Prints microseconds and the percent of the least time that the bytes take.
//
//   recurrent [GB/s of the memory]
#include <cstdlib>
#include <string>
#include <vector>

#include "harness.cuh"
#include "kernels/causal_conv/causal_conv.h"
#include "kernels/delta_rule/delta_rule.h"
#include "kernels/ssm_scan/ssm_scan.h"

namespace millrace::bench {
namespace {

constexpr int kSets = 4;  // of states and inputs
double bandwidth = 4430;  // GB/s

struct Step {
  Step(int sequences, int rows_each) {
    std::vector<SliceTables::Slice> table;
    std::vector<int32_t> order;
    for (int i = 0; i < sequences; ++i) {
      slices.push_back({.first_row = i * rows_each, .rows = rows_each, .slot = i});
      table.push_back({i * rows_each, rows_each, 0, rows_each});
      order.push_back(i);
    }
    of_slices = Buffer(table), of_slots = Buffer(order);
    tables.slices = of_slices.as<SliceTables::Slice>();
    tables.slots = of_slots.as<int32_t>();
    tables.longest_slice = rows_each;
  }
  int64_t rows() const { return slices.back().first_row + slices.back().rows; }
  std::vector<SequenceSlice> slices;
  Buffer of_slices, of_slots;
  SliceTables tables;
};

// bf16 or f32 activations of all sets.
struct Activation {
  Activation(int64_t rows, int64_t cols, DType type = DType::BF16)
      : rows(rows), cols(cols), type(type), data(static_cast<size_t>(kSets * rows * cols * plain_bytes(type))) {
    fill_random(data.data(), type, kSets * rows * cols, static_cast<uint64_t>(rows + cols));
  }
  Matrix at(int set) const {
    auto* begin = data.as<std::byte>() + static_cast<size_t>(set * rows * cols * plain_bytes(type));
    return {type, rows, cols, cols, begin};
  }
  int64_t rows, cols;
  DType type;
  Buffer data;
};

struct Floats {
  Floats(int64_t count, float scale) : data(static_cast<size_t>(count) * 4) {
    fill_random(data.data(), DType::F32, count, static_cast<uint64_t>(count), scale);
  }
  Buffer data;
};

template <class Op>
void time_kernels(const typename Op::Problem& problem, const Step& step, double bytes,
                  const std::function<typename Op::Args(int)>& args) {
  Hardware hardware;
  hardware.device = DeviceKind::Cuda;
  hardware.architecture = 90;
  hardware.l1_bytes = 228 << 10;
  for (const Kernel<Op>* kernel : Op::cuda()) {
    if (!kernel->can_run(problem, hardware)) continue;
    const Buffer workspace(kernel->workspace_bytes(problem, hardware));
    const int launches = step.slices[0].rows > 1 ? 4 : 40;
    const double us = time_in_graph(launches, [&](CudaStream stream, int i) {
      kernel->run(args(i % kSets), {nullptr, workspace.as<std::byte>(), stream, &hardware, true});
    });
    std::printf("%-12s %-10s %3zu sequences of %5d rows: %9.1f us, %5.1f %% of the bandwidth\n", Op::kName.data(),
                kernel->name().data(), step.slices.size(), step.slices[0].rows, us,
                100 * bytes / bandwidth * 1e-3 / us);
  }
}

void time_delta_rule(const DeltaRuleShape& s, int sequences, int rows_each) {
  const Step step(sequences, rows_each);
  const int64_t rows = step.rows();
  const Activation qkv(rows, 2 * s.key_width() + s.value_width()), gates(rows, 2 * s.value_heads);
  const Activation out(rows, s.value_width());
  const Floats decay(s.value_heads, 0), bias(s.value_heads, 1), state(kSets * sequences * s.state_elements(), 1);
  const double bytes = 8.0 * sequences * double(s.state_elements()) + 2.0 * double(rows * (qkv.cols + out.cols));
  time_kernels<DeltaRuleOp>({s, rows, DType::BF16, false, sequences}, step, bytes, [&](int i) {
    return DeltaRuleOp::Args{.shape = s,
                             .q = qkv.at(i).columns(0, s.key_width()),
                             .k = qkv.at(i).columns(s.key_width(), s.key_width()),
                             .v = qkv.at(i).columns(2 * s.key_width(), s.value_width()),
                             .a = gates.at(i).columns(0, s.value_heads),
                             .b = gates.at(i).columns(s.value_heads, s.value_heads),
                             .decay = decay.data.as<float>(),
                             .dt_bias = bias.data.as<float>(),
                             .out = out.at(i),
                             .state = state.data.as<std::byte>() + i * sequences * s.state_elements() * 4,
                             .stride = static_cast<size_t>(s.state_elements()) * 4,
                             .sequences = step.slices,
                             .tables = step.tables};
  });
}

void time_scan(const SsmShape& s, int sequences, int rows_each) {
  const Step step(sequences, rows_each);
  const int64_t rows = step.rows();
  const Activation in(rows, s.inner() + 2 * s.group_cols()), dt(rows, s.heads), out(rows, s.inner(), DType::F32);
  const Floats a(s.heads, 0), bias(s.heads, 1), state(kSets * sequences * s.state_elements(), 1);
  const double bytes = 8.0 * sequences * double(s.state_elements()) + double(rows * (2 * in.cols + 4 * out.cols));
  time_kernels<SsmScanOp>({s, rows, DType::BF16, false, sequences}, step, bytes, [&](int i) {
    return SsmScanOp::Args{.shape = s,
                           .x = in.at(i).columns(0, s.inner()),
                           .b = in.at(i).columns(s.inner(), s.group_cols()),
                           .c = in.at(i).columns(s.inner() + s.group_cols(), s.group_cols()),
                           .dt = dt.at(i),
                           .out = out.at(i),
                           .dt_bias = bias.data.as<float>(),
                           .a = a.data.as<float>(),
                           .d = bias.data.as<float>(),
                           .state = state.data.as<std::byte>() + i * sequences * s.state_elements() * 4,
                           .stride = static_cast<size_t>(s.state_elements()) * 4,
                           .sequences = step.slices,
                           .tables = step.tables};
  });
}

void time_conv(int64_t channels, int sequences, int rows_each) {
  constexpr int kTaps = 4;
  const Step step(sequences, rows_each);
  const int64_t rows = step.rows(), elements = (kTaps - 1) * channels;
  const Activation x(rows, channels), out(rows, channels);
  const Floats weight(channels * kTaps, 1), state(kSets * sequences * elements, 1);
  time_kernels<CausalConvOp>(
      {rows, channels, kTaps}, step, 4.0 * double(rows * channels) + 8.0 * sequences * double(elements), [&](int i) {
        return CausalConvOp::Args{.x = x.at(i),
                                  .out = out.at(i),
                                  .weight = weight.data.as<float>(),
                                  .taps = kTaps,
                                  .state = state.data.as<std::byte>() + i * sequences * elements * 4,
                                  .stride = static_cast<size_t>(elements) * 4,
                                  .sequences = step.slices,
                                  .tables = step.tables,
                                  .silu = true};
      });
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  using namespace millrace;
  using namespace millrace::bench;
  if (argc > 1) bandwidth = std::atof(argv[1]);
  const std::pair<int, int> steps[] = {{1, 1}, {32, 1}, {64, 1}, {1, 64}, {1, 512}, {1, 8192}, {8, 1024}};
  for (const auto& [sequences, rows] : steps) {
    time_delta_rule({.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128}, sequences, rows);
    time_scan({.heads = 48, .head_dim = 64, .groups = 1, .state = 128}, sequences, rows);
    time_conv(8192, sequences, rows);
  }
}
