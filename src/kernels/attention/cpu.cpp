#include <cmath>

#include "kernels/attention/arm/kernels.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/flash.h"
#include "kernels/attention/x86/kernels.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/attention/few_queries-inl.h"
#include "kernels/attention/finish-inl.h"
#include "kernels/attention/many_queries-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

template <DType dtype, Softmax variant>
bool try_piece(const TileShape& shape, const Scratch& scratch, const Piece& piece, Partial& partial) {
  if (shape.is_decode()) return FewQueries<WideProducts<dtype>, variant>(shape, scratch).run(piece, partial);
  return ManyQueries<dtype, variant>(shape, scratch).run(piece, partial);
}

template <DType dtype, Softmax variant>
void run_piece(const AttentionArgs& args, const AttentionWorkspace& space, const Scratch& scratch, const Piece& piece,
               Partial& partial) {
  const TileShape shape(args, space, piece.tile);
  if (!try_piece<dtype, variant>(shape, scratch, piece, partial)) {
    try_piece<dtype, Softmax::Online>(shape, scratch, piece, partial);
  }
}

template <Softmax variant>
RunPiece choose(DType dtype) {
  if (dtype == kFp8) return run_piece<kFp8, variant>;
  switch (dtype) {
    case DType::F16:
      return run_piece<DType::F16, variant>;
    case DType::BF16:
      return run_piece<DType::BF16, variant>;
    case DType::Q8_0:
      return run_piece<DType::Q8_0, variant>;
    default:
      return run_piece<DType::F32, variant>;
  }
}

bool can_run(const AttentionProblem&, const Hardware& hardware) { return hardware.isa.has(kTargetIsa); }

// In decode, the conversion of keys and values takes part of the time.
double gflops(const AttentionProblem& p, const Hardware& hardware) {
  const double share = p.rows > p.sequences ? 0.5 : p.kv == DType::F32 ? 0.35 : 0.25;
  return share * hardware.ceilings.f32_gflops;
}

template <Softmax variant>
const AttentionKernel* flash_kernel() {
  constexpr std::string_view kNames[] = {"flash_online_" MR_TARGET_NAME, "flash_lazy_" MR_TARGET_NAME,
                                         "flash_unified_" MR_TARGET_NAME};
  static const FlashAttention kernel(
      {kNames[static_cast<int>(variant)], kQueryTile, can_run, gflops, choose<variant>, merge, write_out});
  return &kernel;
}

}  // namespace

const AttentionKernel* lazy_kernel() { return flash_kernel<Softmax::Lazy>(); }
const AttentionKernel* online_kernel() { return flash_kernel<Softmax::Online>(); }
const AttentionKernel* unified_kernel() { return flash_kernel<Softmax::Unified>(); }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<AttentionOp> AttentionOp::cpu() {
  KernelList<AttentionOp> list;
#if defined(__aarch64__)
  list = arm_attention_kernels();
#elif defined(__x86_64__)
  list = x86_attention_kernels();
#endif
  for (const AttentionKernel* kernel : {MR_EACH_TARGET(lazy_kernel), MR_EACH_TARGET(online_kernel),
                                        MR_EACH_TARGET(unified_kernel), AttentionOp::reference()}) {
    list.push_back(kernel);
  }
  return list;
}

}  // namespace millrace
#endif
