// Attention kernels that need more than baseline NEON. All of them round queries or weights, so none is exact.
#include "kernels/attention/arm/kernels.h"

#include "kernels/attention/arm/bf16_products.h"
#include "kernels/attention/arm/fp16_products.h"
#include "kernels/attention/arm/half_products.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/flash.h"
#include "kernels/simd/targets.h"
// All inline SIMD code below is compiled for the one static target.
#include "kernels/attention/few_queries-inl.h"
#include "kernels/attention/finish-inl.h"
#include "kernels/attention/many_halves-inl.h"
#include "kernels/attention/many_pairs-inl.h"
#include "kernels/attention/many_queries-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

// Arithmetic of a decode over f16 keys and values: see half_products.h and fp16_products.h.
struct Fhm {
  static constexpr auto score = score_halves;
  static constexpr auto add = add_halves;
};
struct Fp16 {
  static constexpr auto score = score_fp16;
  static constexpr auto add = add_fp16;
};

constexpr int64_t kMostHalves = 32 << 10;  // maximum size of all queries of a row

template <class Arithmetic>
class HalfProducts {
 public:
  static constexpr DType kDType = DType::F16;
  static constexpr bool kApproximate = true;

  void prepare(const float* q, int heads, int64_t dim, int64_t stride) {
    dim_ = dim;
    stride_ = stride;
    const hn::Rebind<hwy::float16_t, F32> d16;
    F32Vec largest = hn::Zero(kF32);
    for (int head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < dim; i += kLanes) {
        const F32Vec x = load(q + head * stride + i);
        largest = hn::Max(largest, hn::Abs(x));
        hn::StoreU(hn::DemoteTo(d16, x), d16, reinterpret_cast<hwy::float16_t*>(q_ + head * dim + i));
      }
    }
    fits_ = max_of(largest) < 65504;
  }
  bool fits() const { return fits_; }  // all queries are within the range of f16

  template <int heads>
  void score(int first, const std::byte* keys, int n, float* scores) const {
    Arithmetic::score(keys, n, q_ + first * dim_, heads, dim_, scores);
  }
  template <int heads>
  void add(const std::byte* values, int n, const float* weights, float* sums) const {
    Arithmetic::add(values, n, weights, heads, dim_, stride_, sums);
  }

 private:
  int64_t dim_ = 0, stride_ = 0;
  bool fits_ = false;
  alignas(64) uint16_t q_[kMostHalves];
};

// In f16 arithmetic weights must not exceed one, so the maximum is updated at once.
template <class Arithmetic>
void run_half_decode(const TileShape& shape, const Scratch& scratch, const Piece& piece, Partial& partial) {
  constexpr Softmax kVariant = std::is_same_v<Arithmetic, Fp16> ? Softmax::Online : Softmax::Lazy;
  if (FewQueries<HalfProducts<Arithmetic>, kVariant>(shape, scratch).run(piece, partial)) return;
  FewQueries<WideProducts<DType::F16>, Softmax::Online>(shape, scratch).run(piece, partial);
}

template <class Arithmetic>
void run_half_piece(const AttentionArgs& args, const AttentionWorkspace& space, const Scratch& scratch,
                    const Piece& piece, Partial& partial) {
  const TileShape shape(args, space, piece.tile);
  if (shape.is_decode()) return run_half_decode<Arithmetic>(shape, scratch, piece, partial);
  if (std::is_same_v<Arithmetic, Fp16> && ManyHalves(shape, scratch).run(piece, partial)) return;
  ManyQueries<DType::F16, Softmax::Lazy>(shape, scratch).run(piece, partial);
}

template <DType dtype>
void run_pair_piece(const AttentionArgs& args, const AttentionWorkspace& space, const Scratch& scratch,
                    const Piece& piece, Partial& partial) {
  const TileShape shape(args, space, piece.tile);
  if (!shape.is_decode()) {
    if (ManyPairs<PairProducts>(shape, scratch).run(piece, partial)) return;
    ManyQueries<dtype, Softmax::Lazy>(shape, scratch).run(piece, partial);
  } else if constexpr (dtype == DType::F16) {
    run_half_decode<Fhm>(shape, scratch, piece, partial);
  } else {
    FewQueries<WideProducts<dtype>, Softmax::Lazy>(shape, scratch).run(piece, partial);
  }
}

bool fits_halves(const AttentionProblem& p) {
  return p.precision == Precision::Fast && p.kv == DType::F16 && p.key_dim % 8 == 0 &&
         int64_t{p.heads} * p.key_dim <= kMostHalves;
}
bool can_run_fp16(const AttentionProblem& p, const Hardware& hardware) {
  return hardware.isa.has(Isa::Fp16) && fits_halves(p);
}
bool can_run_fhm(const AttentionProblem& p, const Hardware& hardware) {
  return hardware.isa.has(Isa::Fhm) && fits_halves(p);
}
bool can_run_pairs(const AttentionProblem& p, const Hardware& hardware) {
  if (!hardware.isa.has(Isa::Bf16) || p.precision != Precision::Fast || p.key_dim % 8 != 0) return false;
  return p.kv == DType::F16 ? can_run_fhm(p, hardware) : p.kv == DType::BF16;
}

// Only Fp16 has its own products for prompts.
template <class Arithmetic>
double half_gflops(const AttentionProblem& p, const Hardware& hardware) {
  constexpr double kPrompts = std::is_same_v<Arithmetic, Fp16> ? 0.85 : 0.6;
  return (p.rows > p.sequences ? kPrompts : 0.31) * hardware.ceilings.f32_gflops;
}
double pair_gflops(const AttentionProblem& p, const Hardware& hardware) {
  if (p.rows > p.sequences) return 0.23 * hardware.ceilings.bf16_gflops;
  return (p.kv == DType::F16 ? 0.31 : 0.25) * hardware.ceilings.f32_gflops;
}

template <class Arithmetic>
RunPiece choose_half(DType) {
  return run_half_piece<Arithmetic>;
}
RunPiece choose_pairs(DType kv) { return kv == DType::F16 ? run_pair_piece<DType::F16> : run_pair_piece<DType::BF16>; }

// Twice the tile of f32: more query vectors share the packing, and they take half the space.
constexpr int kPairQueryTile = 128;

}  // namespace

const AttentionKernel* fp16_kernel() {
  static const FlashAttention kernel(
      {"flash_fp16", kQueryTile, can_run_fp16, half_gflops<Fp16>, choose_half<Fp16>, merge, write_out});
  return &kernel;
}

const AttentionKernel* fhm_kernel() {
  static const FlashAttention kernel(
      {"flash_fhm", kQueryTile, can_run_fhm, half_gflops<Fhm>, choose_half<Fhm>, merge, write_out});
  return &kernel;
}

const AttentionKernel* pair_kernel() {
  static const FlashAttention kernel(
      {"flash_bf16", kPairQueryTile, can_run_pairs, pair_gflops, choose_pairs, merge, write_out});
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

namespace millrace {

KernelList<AttentionOp> arm_attention_kernels() {
  return {N_NEON::pair_kernel(), N_NEON::fhm_kernel(), N_NEON::fp16_kernel()};
}

}  // namespace millrace
