#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/causal_conv/causal_conv.h"
#include "kernels/row_work.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/causal_conv/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

// Channels of one piece of work. A piece owns its columns of the state, so pieces run in any order.
constexpr int64_t kPiece = 128;

// The weights of a piece, tap after tap, and its bias.
struct Piece {
  float taps[CausalConvOp::kMostTaps][kPiece];
  float bias[kPiece];
};

template <int taps>
void load_piece(const CausalConvOp::Args& a, int64_t first, int64_t n, Piece& to) {
  const float* weight = a.weight + first * taps;
  int64_t c = 0;
  if constexpr (taps == 3 || taps == 4) {  // the usual numbers: a decode step spends its time here
    for (; c + kLanes <= n; c += kLanes) {
      F32Vec of[4];
      if constexpr (taps == 3) hn::LoadInterleaved3(kF32, weight + c * taps, of[0], of[1], of[2]);
      if constexpr (taps == 4) hn::LoadInterleaved4(kF32, weight + c * taps, of[0], of[1], of[2], of[3]);
      MR_UNROLL for (int j = 0; j < taps; ++j) store(of[j], to.taps[j] + c);
    }
  }
  for (; c < n; ++c) {
    for (int j = 0; j < taps; ++j) to.taps[j][c] = weight[c * taps + j];
  }
  for (c = 0; c < n; ++c) to.bias[c] = a.bias != nullptr ? a.bias[first + c] : 0;
}

// One row of a piece. `rows`: its inputs, oldest first. Vectors and the scalar end add in the same order.
template <int taps, bool silu>
void convolve_row(const Piece& piece, const float* const (&rows)[taps], float* out, int64_t n) {
  int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) {
    F32Vec sum = load(piece.bias + c);
    MR_UNROLL for (int j = 0; j < taps; ++j) sum = hn::MulAdd(load(piece.taps[j] + c), load(rows[j] + c), sum);
    if constexpr (silu) sum = hn::Div(sum, hn::Add(broadcast(1.0f), exp(hn::Neg(sum))));
    store(sum, out + c);
  }
  for (; c < n; ++c) {
    float sum = piece.bias[c];
    for (int j = 0; j < taps; ++j) sum = std::fma(piece.taps[j][c], rows[j][c], sum);
    out[c] = silu ? sum / (1 + std::exp(-sum)) : sum;
  }
}

// Channels [first, first + n) of one sequence.
template <int taps, bool silu>
void convolve(const CausalConvOp::Args& a, const SequenceSlice& slice, int64_t first, int64_t n) {
  constexpr int64_t kKept = taps - 1;
  Piece piece;
  load_piece<taps>(a, first, n, piece);
  const int64_t channels = a.x.cols;
  auto* state = reinterpret_cast<float*>(a.state + static_cast<size_t>(slice.slot) * a.stride) + first;
  // Input `t` of this slice; negative: of the state.
  const auto input = [&](int64_t t) -> const float* {
    return t < 0 ? state + (kKept + t) * channels : a.x.row<float>(slice.first_row + t) + first;
  };
  for (int64_t t = 0; t < slice.rows; ++t) {
    const float* rows[taps];
    for (int j = 0; j < taps; ++j) rows[j] = input(t - kKept + j);
    convolve_row<taps, silu>(piece, rows, a.out.row<float>(slice.first_row + t) + first, n);
  }
  // Oldest first: a place is read before it is overwritten.
  for (int64_t i = 0; i < kKept; ++i)
    std::memcpy(state + i * channels, input(slice.rows - kKept + i), static_cast<size_t>(n) * sizeof(float));
}

using Convolve = void (*)(const CausalConvOp::Args&, const SequenceSlice&, int64_t, int64_t);

template <bool silu>
Convolve convolve_of(int taps) {
  constexpr Convolve kEach[] = {convolve<1, silu>, convolve<2, silu>, convolve<3, silu>, convolve<4, silu>,
                                convolve<5, silu>, convolve<6, silu>, convolve<7, silu>, convolve<8, silu>};
  return kEach[taps - 1];
}

// Floats that a channel reads and writes: weights and state once, input and output in each row.
int64_t floats_of_channel(int taps, int64_t rows) { return 3 * taps + 2 * rows; }

class SimdCausalConv final : public Kernel<CausalConvOp> {
 public:
  std::string_view name() const override { return "simd_" MR_TARGET_NAME; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.isa.has(kTargetIsa) && p.taps >= 1 && p.taps <= CausalConvOp::kMostTaps;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.channels * floats_of_channel(p.taps, p.rows), sizeof(float), hardware);
  }

  void run(const Args& a, const Executor& executor) const override {
    const Convolve one = a.silu ? convolve_of<true>(a.taps) : convolve_of<false>(a.taps);
    const int64_t channels = a.x.cols, pieces = (channels + kPiece - 1) / kPiece;
    const auto sequences = static_cast<int64_t>(a.sequences.size());
    if (sequences == 0) return;
    const int64_t floats = kPiece * floats_of_channel(a.taps, a.x.rows / sequences);
    for_rows(executor, sequences * pieces, floats, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % pieces * kPiece;
        one(a, a.sequences[static_cast<size_t>(i / pieces)], first, std::min(kPiece, channels - first));
      }
    });
  }
};

}  // namespace

const Kernel<CausalConvOp>* causal_conv_kernel() {
  static const SimdCausalConv kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<CausalConvOp> CausalConvOp::cpu() { return {MR_EACH_TARGET(causal_conv_kernel), CausalConvOp::reference()}; }

}  // namespace millrace
#endif
