// int8 panels for prompts: 32 rows of weights with one scale per stretch of up to 512 elements. Included inside a
// target region.
#pragma once

#include "kernels/linear/rows8/tiles-inl.h"
#include "kernels/linear/rows8/tuned.h"
#include "kernels/linear/rows8/x86/requantize-inl.h"

constexpr int kSuperSteps = kSuperGroups / 2;  // one instruction takes 64 elements

// Cuts a row into stretches of about equal length, with one scale each.
struct Supers {
  int64_t groups, each, count;  // groups of 32 per row, groups per stretch, stretches per row

  explicit Supers(int64_t k)
      : groups(k / 32),
        each(2 * ceil_div(steps(groups), ceil_div(steps(groups), kSuperSteps))),
        count(ceil_div(groups, each)) {}
  static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
  static int64_t steps(int64_t groups) { return ceil_div(groups, 2); }
  int64_t first(int64_t super) const { return super * each; }
  int64_t size(int64_t super) const { return std::min(each, groups - first(super)); }
};

struct alignas(64) WSuper {
  int8_t q[kSuperSteps][2][16][16][4];  // [step][tile][quad][row]
  float scale[32];
};

// Requantizes a stretch of two strips into a tile of a panel. `flip` adds 128 to make the bytes unsigned.
template <class Format, bool flip>
__attribute__((noinline)) void requantize_strips(const LinearWeights& weights, int64_t strip, int64_t other,
                                                 const Supers& supers, int64_t super, int tile, WSuper& to) {
  using Block = typename Format::Block;
  const int64_t blocks = supers.groups / Format::kGroups;
  const auto* data = reinterpret_cast<const Block*>(weights.data);
  struct Place {
    const Block *a, *b;
    int g;
  };
  const auto place_of = [&](int64_t i) MR_INLINE {
    const int64_t group = supers.first(super) + i, block = group / Format::kGroups;
    return Place{data + strip * blocks + block, data + other * blocks + block,
                 static_cast<int>(group % Format::kGroups)};
  };
  const Requantizer<Format> requantizer(supers.size(super), place_of);
  _mm512_store_ps(to.scale + tile * 16, requantizer.step());
  for (int64_t i = 0; i < supers.size(super); ++i) {
    const Place at = place_of(i);
    const auto low = requantizer.affine(i, 0), high = requantizer.affine(i, Format::kScales - 1);
    auto* quads = to.q[i / 2][tile] + i % 2 * 8;
    unrolled<4>([&](auto j) MR_INLINE {
      const WideQuads q = wide_quads<Format, j>(*at.a, *at.b, at.g);
      const __m512i flipped = _mm512_set1_epi8(flip ? -128 : 0);
      _mm512_store_si512(quads[j], _mm512_xor_si512(Requantizer<Format>::apply(low, q.low), flipped));
      _mm512_store_si512(quads[j + 4], _mm512_xor_si512(Requantizer<Format>::apply(high, q.high), flipped));
    });
  }
}

// Prefetches the weights of the next panel into the L2 cache while the tiles of this one are multiplied. Without it, a
// core that waits for each line while unpacking reads only 11 GB/s.
class PanelAhead {
 public:
  PanelAhead() = default;
  // `strips` ranges of `bytes` each, `stride` bytes apart, spread over `steps` calls.
  PanelAhead(const std::byte* first, int64_t strips, size_t bytes, size_t stride, int64_t steps)
      : at_(first), end_(first + bytes), bytes_(bytes), stride_(stride), strips_(strips) {
    const int64_t lines = strips * static_cast<int64_t>((bytes + 63) / 64);
    lines_a_step_ = Supers::ceil_div(lines, std::max<int64_t>(steps, 1));
  }

  MR_INLINE void step() {
    for (int64_t i = 0; i < lines_a_step_ && strips_ > 0; ++i) {
      __builtin_prefetch(at_, 0, 2);
      at_ += 64;
      if (at_ < end_) continue;
      at_ = end_ + (stride_ - bytes_);
      end_ += stride_;
      --strips_;
    }
  }

 private:
  const std::byte *at_ = nullptr, *end_ = nullptr;
  size_t bytes_ = 0, stride_ = 0;
  int64_t strips_ = 0, lines_a_step_ = 0;
};

constexpr int64_t kPanelSupers = MR_AMX_SUPERS;
constexpr int64_t kInt8Strips = 4;

// Makes the panels of a piece one after the other, in the same buffer.
template <bool flip>
class PanelMaker {
 public:
  PanelMaker(const LinearWeights& weights, const Rows8Piece& piece, WSuper* panel)
      : weights_(weights), supers_(weights.k), piece_(piece), panel_(panel) {}

  void fill(int64_t super, int64_t super_end, int64_t strip) const {
    const int64_t strip_end = std::min(strip + kInt8Strips, piece_.strip_end);
    with_format(weights_.format, [&](auto format) {
      for (int64_t s = strip; s < strip_end; s += 2) {
        const int64_t other = std::min(s + 1, strip_end - 1);  // an odd last strip is used twice
        for (int64_t i = super; i < super_end; ++i) {
          requantize_strips<decltype(format), flip>(weights_, s, other, supers_, i, static_cast<int>(s - strip) / 2,
                                                    panel_[i - super]);
        }
      }
    });
    asm volatile("" ::: "memory");  // the compiler does not see that tile loads read the panel
  }

  // Prefetcher for the panel after this one: the next strips of the same stretches, else the first strips of the next
  // stretches, else the worker's next piece.
  PanelAhead after(int64_t super, int64_t super_end, int64_t strip) const {
    int64_t next = strip + kInt8Strips, from = super;
    if (next >= piece_.strip_end) {
      from = super_end < supers_.count ? super_end : 0;
      next = from > 0 ? piece_.strip_begin : piece_.strip_after;
    }
    const size_t stride =
        packed_block_bytes(weights_.format) * static_cast<size_t>(weights_.k / info(weights_.format).block);
    const auto place = [&](int64_t i) {
      return stride * static_cast<size_t>(std::min(supers_.first(i), supers_.groups)) /
             static_cast<size_t>(supers_.groups);
    };
    const int64_t strips = Supers::ceil_div(weights_.n, kPackedRows) - next;
    const int64_t rows = Supers::ceil_div(piece_.m_end - piece_.m_begin, 32);
    const int64_t steps = rows * Supers::steps(std::min(kPanelSupers * supers_.each, supers_.groups));
    return {weights_.data + static_cast<size_t>(next) * stride + place(from),
            std::clamp<int64_t>(strips, 0, kInt8Strips), place(from + kPanelSupers) - place(from), stride, steps};
  }

 private:
  const LinearWeights& weights_;
  const Supers supers_;
  const Rows8Piece piece_;
  WSuper* panel_;
};
