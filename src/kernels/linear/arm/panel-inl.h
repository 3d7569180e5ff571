// What the micro-kernels of panels share. Included inside a target region.
#pragma once

#include "kernels/linear/arm/activations-inl.h"
#include "kernels/linear/arm/epilogue-inl.h"
#include "kernels/linear/arm/unpack-inl.h"
#include "kernels/linear/arm/zero-inl.h"
#include "kernels/linear/rows8/panel-inl.h"
#include "kernels/linear/rows8/tuned.h"

// Int8 rows for the Micros that multiply such.
template <class Micro>
void quantize_for_panels(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) {
  const float unit = unit_of(args.weights->format);
  for (int64_t m = m_begin; m < m_end; m += Micro::kRows) {
    auto* tile = reinterpret_cast<typename Micro::XBlock*>(x) + m / Micro::kRows * (args.x.cols / 32);
    quantize_tile(args.x, m, std::min<int64_t>(Micro::kRows, m_end - m), Micro::kRows, unit, tile);
  }
}
