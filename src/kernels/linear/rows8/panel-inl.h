// Prompts and large batches: a panel of weights is unpacked once and stays in the L1 cache while many rows of x are
// multiplied with it. Included inside a target region, after the formats.
//
// A Micro provides the part that depends on the instruction set:
//   kJoined                         strips that are multiplied together
//   Group<Format>                   8 kJoined rows x 32 elements, unpacked
//   XBlock, kRows                   32 elements of kRows rows of x
//   kStrips, kGroups                size of a panel
//   unpack<Format>(block, g, which, to)   unpacks one of the joined strips, `which`
//   unpack_plain<Format>(weights, strip, group, which, to)   the same from plain rows, if supported
//   multiply<Format, m>(...)        joined strips and m rows of x, over a stretch of k
#pragma once

#include "kernels/linear/rows8/tiles-inl.h"

struct Stretch {  // range of k in groups of 32
  int64_t first, count;
};

// Length of the stretches that k is cut into: at most `most` groups, about equal, in whole blocks.
inline int64_t even_stretch(int64_t groups, int64_t most, int64_t block) {
  const int64_t stretches = (groups + most - 1) / most;
  const int64_t even = (groups + stretches - 1) / stretches;
  return std::min((even + block - 1) / block * block, most);
}

// BF16 rows in place, used like a packed format. F16 rows would lose three bits in a bf16 panel.
struct PlainRows {
  static constexpr int kGroups = 1;
};

template <class Format>
constexpr bool kPlain = std::is_same_v<Format, PlainRows>;

template <class Micro, class Format>
void unpack_panel(const LinearWeights& weights, Stretch stretch, int64_t strip_begin, int64_t strip_end,
                  typename Micro::template Group<Format>* panel) {
  for (int64_t strip = strip_begin; strip < strip_end; ++strip) {
    const int which = static_cast<int>((strip - strip_begin) % Micro::kJoined);
    auto* to = panel + (strip - strip_begin) / Micro::kJoined * Micro::kGroups;
    if constexpr (kPlain<Format>) {
      for (int64_t i = 0; i < stretch.count; ++i) {
        Micro::template unpack_plain<Format>(weights, strip, stretch.first + i, which, to[i]);
      }
    } else {
      const int64_t blocks = weights.k / (32 * Format::kGroups);
      const auto* block = reinterpret_cast<const typename Format::Block*>(weights.data) + strip * blocks +
                          stretch.first / Format::kGroups;
      for (int64_t i = 0; i < stretch.count; ++block) {
        prefetch_after(block);
        for (int g = 0; g < Format::kGroups; ++g, ++i) Micro::template unpack<Format>(*block, g, which, to[i]);
      }
    }
  }
}

// The loop over stretches of k is the outermost, so that x of one stretch stays in the L2 cache while all strips are
// multiplied.
template <class Micro, class Format>
void multiply_panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  const int64_t groups = (args.weights->k + 31) / 32;
  const int64_t most = even_stretch(groups, Micro::kGroups, Format::kGroups);
  auto* panel = reinterpret_cast<typename Micro::template Group<Format>*>(scratch);
  for (Stretch stretch{0, 0}; stretch.first < groups; stretch.first += most) {
    stretch.count = std::min(most, groups - stretch.first);
    for (int64_t strip = piece.strip_begin; strip < piece.strip_end; strip += Micro::kStrips) {
      const int64_t strip_end = std::min(strip + Micro::kStrips, piece.strip_end);
      unpack_panel<Micro, Format>(*args.weights, stretch, strip, strip_end, panel);
      for_tiles<Micro::kRows>(piece.m_begin, piece.m_end, [&](int64_t row, auto rows) {
        const auto* tile =
            reinterpret_cast<const typename Micro::XBlock*>(x) + row / Micro::kRows * groups + stretch.first;
        for (int64_t s = strip; s < strip_end; s += Micro::kJoined) {
          const auto* joined = panel + (s - strip) / Micro::kJoined * Micro::kGroups;
          Micro::template multiply<Format, rows>(args, joined, tile, stretch, s, row);
        }
      });
    }
  }
}

template <class Micro>
size_t panel_x_bytes(int64_t m, int64_t k) {
  const int64_t tiles = (m + Micro::kRows - 1) / Micro::kRows;
  return static_cast<size_t>(tiles * ((k + 31) / 32)) * sizeof(typename Micro::XBlock);
}

template <class Micro>
void panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  with_format(args.weights->format,
              [&](auto format) { multiply_panels<Micro, decltype(format)>(args, x, scratch, piece); });
}

// Calls visit(Format()) for packed formats and for plain rows.
template <class Visit>
inline void with_any_format(DType format, Visit visit) {
  if (format == DType::BF16) return visit(PlainRows());
  with_format(format, visit);
}

// For Micros that also read plain rows.
template <class Micro>
void panels_of_any(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  with_any_format(args.weights->format,
                  [&](auto format) { multiply_panels<Micro, decltype(format)>(args, x, scratch, piece); });
}
