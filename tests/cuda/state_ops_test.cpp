// Ops of recurrent state on a GPU against the CPU's references: sequences that come in pieces, states in slots.
#include "kernels/state_op_cases.h"

#include "cuda/gpu_slices.h"

namespace millrace {
namespace {

constexpr int kSequences = 3;

TEST(CudaCausalConv, MatchesTheReference) {
  for (const ConvCase& c : conv_cases()) {
    for (const DType dtype : kPlainTypes) {
      Random random;
      SCOPED_TRACE(std::to_string(c.channels) + " channels, " + std::to_string(c.taps) + " taps, seed " +
                   std::to_string(random.seed()));
      std::vector<float> weight(static_cast<size_t>(c.channels * c.taps)), bias(static_cast<size_t>(c.channels));
      for (float& w : weight) w = random.normal();
      for (float& b : bias) b = random.normal();
      const GpuBytes gpu_weight(weight), gpu_bias(bias);
      const size_t stride = static_cast<size_t>(c.taps * c.channels) * sizeof(float) + 64;
      std::vector<std::byte> state((kSequences + 1) * stride);
      const GpuBytes gpu_state(state);
      for (const auto& slices : random_steps(kSequences, c.length, std::max(6, c.length), random)) {
        TestMatrix x(rows_of(slices), c.channels, random), expected(rows_of(slices), c.channels);
        TestMatrix out = expected;
        round_to(x, dtype);
        CausalConvOp::Args args{.x = x.view(),
                                .out = expected.view(),
                                .weight = weight.data(),
                                .taps = c.taps,
                                .state = state.data(),
                                .stride = stride,
                                .sequences = slices,
                                .bias = c.bias ? bias.data() : nullptr,
                                .silu = c.silu};
        CausalConvOp::reference()->run(args, {});
        const GpuCopy gpu_x(x, dtype), gpu_out(out, dtype);
        const GpuSlices tables(slices);
        args.x = gpu_x.view(), args.out = gpu_out.view(), args.tables = tables.tables();
        args.weight = gpu_weight.as<float>(), args.bias = c.bias ? gpu_bias.as<float>() : nullptr;
        args.state = gpu_state.data();
        CausalConvOp::cuda()[0]->run(args, on_gpu());
        gpu_out.read(out);
        EXPECT_TRUE(out.spare_is_untouched());
        EXPECT_LE(out.distance(expected), 1e-6 + rounding_of(dtype));
        EXPECT_EQ(gpu_state.read(), state);
      }
    }
  }
}

// Distance of two states, relative to the length of `expected`.
double state_distance(const std::vector<std::byte>& got, const std::vector<std::byte>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size() / sizeof(float); ++i) {
    const double want = reinterpret_cast<const float*>(expected.data())[i];
    error += std::pow(reinterpret_cast<const float*>(got.data())[i] - want, 2);
    norm += want * want;
  }
  return std::sqrt(error / norm);
}

void check_delta_rule(const Kernel<DeltaRuleOp>& kernel, const DeltaCase& c, DType dtype, int most_rows) {
  Random random;
  const DeltaRuleShape& s = c.shape;
  const DeltaRuleOp::Problem problem{s, kSequences * c.length, dtype};
  if (!kernel.can_run(problem, gpu().hardware())) return;
  SCOPED_TRACE(to_string(problem) + " " + std::string(kernel.name()) + " seed " + std::to_string(random.seed()));
  EXPECT_GT(kernel.estimate_us(problem, gpu().hardware()), 0);
  const size_t stride = static_cast<size_t>(s.state_elements()) * sizeof(float) + 64;
  std::vector<std::byte> state((kSequences + 1) * stride);
  const GpuBytes gpu_state(state);
  const GpuBytes workspace(std::vector<std::byte>(kernel.workspace_bytes(problem, gpu().hardware()), std::byte{0xff}));
  for (const auto& slices : random_steps(kSequences, c.length, most_rows, random)) {
    DeltaInputs in(s, rows_of(slices), random, c.decay);
    TestMatrix expected(rows_of(slices), s.value_width()), out = expected;
    for (TestMatrix* m : {&in.q, &in.k, &in.v, &in.a, &in.b, &in.gate}) round_to(*m, dtype);
    DeltaRuleOp::Args args{.shape = s,
                           .q = in.q.view(),
                           .k = in.k.view(),
                           .v = in.v.view(),
                           .a = in.a.view(),
                           .b = in.b.view(),
                           .decay = in.decay.data(),
                           .dt_bias = in.dt_bias.data(),
                           .out = expected.view(),
                           .norm = c.normed ? in.norm.data() : nullptr,
                           .epsilon = DeltaInputs::kEpsilon,
                           .gate = in.gate.view(),
                           .state = state.data(),
                           .stride = stride,
                           .sequences = slices};
    DeltaRuleOp::reference()->run(args, {});
    const GpuCopy q(in.q, dtype), k(in.k, dtype), v(in.v, dtype), a(in.a, dtype), b(in.b, dtype);
    const GpuCopy gpu_out(out, dtype);
    const GpuCopy gate(in.gate, dtype);
    const GpuBytes decay(in.decay), dt_bias(in.dt_bias), norm(in.norm);
    args.gate = gate.view(), args.norm = c.normed ? norm.as<float>() : nullptr;
    const GpuSlices tables(slices);
    args.q = q.view(), args.k = k.view(), args.v = v.view(), args.a = a.view(), args.b = b.view();
    args.decay = decay.as<float>(), args.dt_bias = dt_bias.as<float>(), args.out = gpu_out.view();
    args.state = gpu_state.data(), args.tables = tables.tables();
    kernel.run(args, on_gpu(workspace.data()));
    gpu_out.read(out);
    EXPECT_TRUE(out.spare_is_untouched());
    EXPECT_LE(out.distance(expected), 2e-5 + (c.normed ? 2 : 1) * rounding_of(dtype));
  }
  EXPECT_LE(state_distance(gpu_state.read(), state), 2e-5);
}

TEST(CudaDeltaRule, MatchesTheReference) {
  for (const auto* kernel : DeltaRuleOp::cuda()) {
    std::vector<DeltaCase> cases = delta_cases();
    for (size_t i = 0; i < cases.size(); i += 2) cases[i].normed = true;
    for (const DeltaCase& c : cases) {
      for (const DType dtype : kPlainTypes) {
        check_delta_rule(*kernel, c, dtype, c.length);
        check_delta_rule(*kernel, c, dtype, 16 * c.length);  // nearly all slices are whole prompts
      }
    }
  }
}

// Convolution, rule, norm and gate as one call, against the four references. Steps of single rows are one launch.
void check_fused_steps(const DeltaRuleShape& s, int sequences, int taps, int most_rows) {
  Random random;
  const int32_t length = 9;
  const int64_t keys = s.key_width(), values = s.value_width(), channels = 2 * keys + values;
  const DeltaRuleOp::Problem problem{s, sequences * length, DType::BF16};
  const Kernel<DeltaRuleOp>& kernel = *DeltaRuleOp::cuda().front();
  SCOPED_TRACE(to_string(problem) + " seed " + std::to_string(random.seed()));
  ASSERT_TRUE(kernel.can_run(problem, gpu().hardware()) && kernel.takes_along(problem, gpu().hardware()));
  std::vector<float> weight(static_cast<size_t>(channels * taps));
  for (float& w : weight) w = random.normal();
  const GpuBytes gpu_weight(weight);
  const size_t stride = static_cast<size_t>(s.state_elements()) * sizeof(float) + 64;
  const size_t kept = static_cast<size_t>((taps - 1) * channels) * sizeof(float) + 64;
  const auto slots = static_cast<size_t>(sequences + 1);
  std::vector<std::byte> state(slots * stride), inputs(slots * kept);
  const GpuBytes gpu_state(state), gpu_inputs(inputs);
  const GpuBytes workspace(std::vector<std::byte>(kernel.workspace_bytes(problem, gpu().hardware()), std::byte{0xff}));
  for (const auto& slices : random_steps(sequences, length, most_rows, random)) {
    const int64_t rows = rows_of(slices);
    DeltaInputs in(s, rows, random);
    TestMatrix x(rows, channels, random), qkv(rows, channels), expected(rows, values), out = expected;
    for (TestMatrix* m : {&x, &in.a, &in.b, &in.gate}) round_to(*m, DType::BF16);
    CausalConvOp::Args conv{.x = x.view(),
                            .out = qkv.view(),
                            .weight = weight.data(),
                            .taps = taps,
                            .state = inputs.data(),
                            .stride = kept,
                            .sequences = slices,
                            .silu = true};
    const auto rule = [&](const Matrix& from) {
      return DeltaRuleOp::Args{.shape = s,
                               .q = from.columns(0, keys),
                               .k = from.columns(keys, keys),
                               .v = from.columns(2 * keys, values),
                               .decay = in.decay.data(),
                               .dt_bias = in.dt_bias.data(),
                               .norm = in.norm.data(),
                               .epsilon = DeltaInputs::kEpsilon,
                               .state = state.data(),
                               .stride = stride,
                               .sequences = slices};
    };
    DeltaRuleOp::Args args = rule(qkv.view());
    args.a = in.a.view(), args.b = in.b.view(), args.out = expected.view(), args.gate = in.gate.view();
    CausalConvOp::reference()->run(conv, {});
    DeltaRuleOp::reference()->run(args, {});
    const GpuCopy gpu_x(x, DType::BF16), gpu_qkv(qkv, DType::BF16), gpu_out(out, DType::BF16);
    const GpuCopy a(in.a, DType::BF16), b(in.b, DType::BF16), gate(in.gate, DType::BF16);
    const GpuBytes decay(in.decay), dt_bias(in.dt_bias), norm(in.norm);
    const GpuSlices tables(slices);
    conv.x = gpu_x.view(), conv.out = gpu_qkv.view(), conv.weight = gpu_weight.as<float>();
    conv.state = gpu_inputs.data(), conv.tables = tables.tables();
    args = rule(gpu_qkv.view());
    args.a = a.view(), args.b = b.view(), args.out = gpu_out.view(), args.gate = gate.view();
    args.decay = decay.as<float>(), args.dt_bias = dt_bias.as<float>(), args.norm = norm.as<float>();
    args.state = gpu_state.data(), args.tables = tables.tables(), args.conv = &conv;
    kernel.run(args, on_gpu(workspace.data()));
    gpu_out.read(out);
    EXPECT_TRUE(out.spare_is_untouched());
    EXPECT_LE(out.distance(expected), 1e-4 + (most_rows == 1 ? 1 : 4) * rounding_of(DType::BF16));
    EXPECT_EQ(gpu_inputs.read(), inputs);
  }
  EXPECT_LE(state_distance(gpu_state.read(), state), most_rows == 1 ? 1e-4 : 0x1p-7);
}

TEST(CudaDeltaRule, TakesTheConvolutionAlong) {
  const DeltaRuleShape shapes[] = {{2, 4, 128, 128}, {2, 8, 128, 64, /*tiled=*/true}, {1, 1, 16, 32},
                                   {3, 3, 64, 32},   {2, 6, 104, 112, true},          {1, 8, 96, 112}};
  for (const DeltaRuleShape& shape : shapes) {
    check_fused_steps(shape, 3, 4, 1);
    check_fused_steps(shape, 3, 3, 4);
  }
  check_fused_steps({16, 32, 128, 128, true}, 21, 4, 1);  // blocks compute several tiles
}

// A chunk begins where a step's rows begin, so that results depend on the cut.
TEST(CudaDeltaRule, BatchInvariantStepsGoRowByRow) {
  const DeltaRuleShape shape{1, 2, 64, 64};
  int kernels = 0;
  for (const auto* kernel : DeltaRuleOp::cuda()) {
    if (!kernel->can_run({shape, 1, DType::BF16, /*invariant=*/true}, gpu().hardware())) continue;
    EXPECT_EQ(kernel->name(), "cuda_rows");
    ++kernels;
  }
  EXPECT_EQ(kernels, 1);
}

}  // namespace
}  // namespace millrace
