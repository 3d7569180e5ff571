// The cases on which the small ops' kernels are tested and timed: shapes of real models, and odd ones.
#pragma once

#include <vector>

#include "kernels/kernel_set.h"

namespace millrace {

struct NormCase {
  NormOp::Problem problem;
  bool weighted = true, biased = false;
  float offset = 0;  // added to the inputs, for a mean far from zero
  bool weights_per_group = false;
  int second_from = 0;  // groups from here on have weights of their own; 0: none
};

inline std::vector<NormCase> norm_cases() {
  return {
      {{NormKind::Rms, 1, 576, 1}},
      {{NormKind::Rms, 512, 576, 1}},
      {{NormKind::Rms, 3, 7, 1}},
      {{NormKind::Rms, 5, 4096, 1}, false},
      {{NormKind::Rms, 9, 16 * 128, 16}},
      {{NormKind::Rms, 2, 3 * 20, 3}},
      {{NormKind::Rms, 1, 2304, 1, true}},
      {{NormKind::Rms, 37, 577, 1, true}},
      {{NormKind::Rms, 4, 3 * 20, 3, true}, false},
      {{NormKind::Layer, 3, 100, 1, true}, true, true},
      {{NormKind::Layer, 1, 768, 1}, true, true},
      {{NormKind::Layer, 130, 2048, 1}, true, false, 100},
      {{NormKind::Layer, 4, 13, 1}, false, true},
      {{NormKind::Layer, 3, 4 * 80, 4}, true, true, -30},
      {{NormKind::Layer, 2, 64, 1}, false, false},
      {{NormKind::Layer, 3, 4 * 80, 4}, true, true, 5, /*weights_per_group=*/true},
      {{NormKind::Layer, 65, 3 * 20, 3}, true, false, 0, /*weights_per_group=*/true},
      {{NormKind::Rms, 2, 8 * 128, 8}, true, false, 0, /*weights_per_group=*/true},
      {{NormKind::Rms, 3, 36 * 128, 36}, true, false, 0, false, /*second_from=*/32},  // q and k
      {{NormKind::Rms, 5, 3 * 20, 3}, true, false, 0, false, /*second_from=*/1},
  };
}

inline std::vector<RopeOp::Problem> rope_cases() {
  return {
      {RopeStyle::Halves, 1, 9, 64, 64},         {RopeStyle::Halves, 300, 32, 128, 128},
      {RopeStyle::Halves, 7, 2, 80, 32},         {RopeStyle::Halves, 3, 5, 20, 12},
      {RopeStyle::Halves, 2, 1, 6, 2},           {RopeStyle::Interleaved, 1, 9, 64, 64},
      {RopeStyle::Interleaved, 257, 8, 128, 64}, {RopeStyle::Interleaved, 5, 3, 20, 20},
      {RopeStyle::Interleaved, 2, 2, 10, 6},
  };
}

// Random inputs exceed this limit on both sides.
constexpr SwigluClamp kTestClamp{1.5f, 1.2f};

inline std::vector<ActivationOp::Problem> activation_cases() {
  std::vector<ActivationOp::Problem> cases;
  for (Activation kind :
       {Activation::Silu, Activation::GeluTanh, Activation::GeluErf, Activation::Relu, Activation::ReluSquared}) {
    for (bool gated : {false, true}) {
      cases.push_back({kind, gated, 1, 1536});
      cases.push_back({kind, gated, 200, 333});
      cases.push_back({kind, gated, 3, 5});
    }
  }
  cases.push_back({Activation::ClampedSwiglu, true, 1, 1536});
  cases.push_back({Activation::ClampedSwiglu, true, 200, 333});
  cases.push_back({Activation::ClampedSwiglu, true, 3, 5});
  return cases;
}

inline std::vector<ElementwiseOp::Problem> elementwise_cases() {
  std::vector<ElementwiseOp::Problem> cases;
  for (Elementwise kind : {Elementwise::Add, Elementwise::Multiply, Elementwise::Scale, Elementwise::Softcap,
                           Elementwise::Gather, Elementwise::ScaleByPosition, Elementwise::Clamp,
                           Elementwise::ScaleRowsBySigmoid, Elementwise::ScaleBySigmoid}) {
    cases.push_back({kind, 1, 576});
    cases.push_back({kind, 333, 577});
    cases.push_back({kind, 4, 3});
  }
  return cases;
}

inline std::vector<EmbeddingOp::Problem> embedding_cases() {
  std::vector<EmbeddingOp::Problem> cases;
  for (const DTypeInfo& format : all_dtypes()) {
    cases.push_back({format.dtype, 1, 256 * 3});
    cases.push_back({format.dtype, 77, 1024});
    if (format.block < 256) cases.push_back({format.dtype, 3, format.block == 1 ? 37 : 32 * 9});
  }
  return cases;
}

inline std::vector<KvWriteOp::Problem> kv_write_cases() {
  std::vector<KvWriteOp::Problem> cases;
  for (DType kv : {DType::F32, DType::F16, DType::BF16, DType::Q8_0, kFp8}) {
    const int odd = kv == DType::Q8_0 ? 96 : 20;
    cases.push_back({kv, 3, 64, 64, 1});
    cases.push_back({kv, 8, 128, 128, 300});
    cases.push_back({kv, 2, odd, odd, 19});
    cases.push_back({kv, 2, 192, 128, 19});  // values of another width
    cases.push_back({kv, 3, odd, 64, 5});
    cases.push_back({kv, 1, 96, 64, 19, /*latent=*/true});
  }
  return cases;
}

}  // namespace millrace
