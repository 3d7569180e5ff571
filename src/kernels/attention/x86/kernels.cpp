// Attention kernels that need more than AVX-512. They round queries and weights, so none is exact.
#include "kernels/attention/x86/kernels.h"

#include "kernels/attention/attention.h"
#include "kernels/attention/flash.h"
#include "kernels/attention/x86/tile_products.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/x86/kernels.cpp"
#include <hwy/foreach_target.h>

#include "kernels/attention/few_queries-inl.h"
#include "kernels/attention/finish-inl.h"
#include "kernels/attention/many_pairs-inl.h"
#include "kernels/attention/many_queries-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

template <DType dtype>
void run_tile_piece(const AttentionArgs& args, const AttentionWorkspace& space, const Scratch& scratch,
                    const Piece& piece, Partial& partial) {
  const TileShape shape(args, space, piece.tile);
  if (shape.is_decode()) {
    FewQueries<WideProducts<dtype>, Softmax::Lazy>(shape, scratch).run(piece, partial);
  } else if (!ManyPairs<TileProducts>(shape, scratch).run(piece, partial)) {
    ManyQueries<dtype, Softmax::Lazy>(shape, scratch).run(piece, partial);
  }
}

RunPiece choose_tiles(DType dtype) {
  return dtype == DType::F16 ? run_tile_piece<DType::F16> : run_tile_piece<DType::BF16>;
}

bool can_run_tiles(const AttentionProblem& p, const Hardware& hardware) {
  return hardware.isa.has(Isa::Amx) && p.precision == Precision::Fast && p.key_dim % 32 == 0 &&
         (p.kv == DType::F16 || p.kv == DType::BF16);
}

// The softmax between the products takes most of the time.
double tile_gflops(const AttentionProblem& p, const Hardware& hardware) {
  return (p.rows > p.sequences ? 2.5 : 0.35) * hardware.ceilings.f32_gflops;
}

// Keys and values are packed again for each tile of this many query vectors.
constexpr int kTileQueries = 128;

}  // namespace

const AttentionKernel* tile_kernel() {
  static const FlashAttention kernel(
      {"flash_amx", kTileQueries, can_run_tiles, tile_gflops, choose_tiles, merge, write_out});
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace millrace {

KernelList<AttentionOp> x86_attention_kernels() { return {N_AVX3::tile_kernel()}; }

}  // namespace millrace
#endif
