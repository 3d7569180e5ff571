#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "sampling/block_maxima.h"
#include "sampling/border.h"

namespace millrace {
namespace {

// Not inline: a step of the model evicts all code from the caches, and fetching code takes longer than running it. One
// copy is fetched once.
[[gnu::noinline]] float kth_largest(std::span<float> values, size_t k) {
  const auto kth = values.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(values.begin(), kth, values.end(), std::greater<>());
  return *kth;
}

// Returns a lower bound of the k-th largest value: at least k values reach it. Merges the block maxima into kLeft * k
// groups, since selecting among few is faster, and returns the k-th largest group maximum. A group consists of distant
// blocks: large logits cluster among neighbours of the vocabulary, and one group would hide all but one of them.
float reached_by(std::span<const float> maxima, size_t k) {
  constexpr size_t kLeft = 2;  // groups for each of the k values
  const size_t groups = std::min(kLeft * k, maxima.size());
  BlockMaxima order;
  std::copy_n(maxima.begin(), groups, order.begin());
  for (size_t from = groups; from < maxima.size(); from += groups) {
    const size_t count = std::min(groups, maxima.size() - from);
    for (size_t i = 0; i < count; ++i) order[i] = larger(order[i], maxima[from + i]);
  }
  return kth_largest(std::span(order).first(groups), k);
}

// Ascending indices that include the k largest values; empty if they do not fit into `room`. Only blocks whose maximum
// reaches the bound can hold such values, so nearly all of a large vocabulary is read once.
std::span<const uint32_t> find_candidates(std::span<const float> values, size_t k, ThreadPool* helpers,
                                          std::span<uint32_t> room) {
  const int64_t blocks = blocks_of(values);
  if (static_cast<int64_t>(k) > blocks / 2 || blocks > kMostBlocks) return {};
  BlockMaxima room_for_maxima;
  const std::span<const float> maxima = block_maxima(values, helpers, room_for_maxima);
  const float border = reached_by(maxima, k);
  if (border == -kInfinity) return {};  // in a block of NaN no value equals the maximum
  std::array<uint32_t, kMostBlocks> chosen;
  size_t chosen_count = 0, found = 0;
  for (int64_t i = 0; i < blocks; ++i) {
    if (!(maxima[static_cast<size_t>(i)] >= border)) continue;
    chosen[chosen_count++] = static_cast<uint32_t>(i);
    // The lines may be in another core's caches: prefetching overlaps their latencies.
    for (int64_t at = i * kBlock; at < (i + 1) * kBlock; at += kLine) __builtin_prefetch(values.data() + at);
  }
  for (const uint32_t block : std::span(chosen).first(chosen_count)) {
    const auto begin = static_cast<size_t>(block) * kBlock, end = std::min<size_t>(begin + kBlock, values.size());
    for (size_t from = begin; from < end; from += kLine) {
      const size_t to = std::min(from + kLine, end);
      if (!(largest(values.subspan(from, to - from)) >= border)) continue;
      if (found + kLine > room.size()) return {};
      for (size_t i = from; i < to; ++i) {
        room[found] = static_cast<uint32_t>(i);
        found += values[i] >= border ? 1 : 0;  // false for NaN
      }
    }
  }
  return room.first(found);
}

}  // namespace

size_t gather_top_k(std::span<const float> values, size_t k, float* kept, int32_t* kept_index, ThreadPool* helpers) {
  std::array<uint32_t, 2048> room;
  size_t found = 0;
  const auto keep = [&](size_t i) {
    kept[found] = values[i];
    kept_index[found++] = static_cast<int32_t>(i);
  };
  const auto candidates = find_candidates(values, k, helpers, room);
  if (!candidates.empty()) {
    std::array<float, room.size()> room_for_order;
    const std::span<float> order = std::span(room_for_order).first(candidates.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = values[candidates[i]];
    const float least = kth_largest(order, k);
    int64_t equal =
        static_cast<int64_t>(k) - std::count_if(order.begin(), order.end(), [&](float x) { return x > least; });
    for (const uint32_t i : candidates) {
      if (values[i] > least || (values[i] == least && equal-- > 0)) keep(i);
    }
    return found;
  }
  const auto key = [&](size_t i) { return ordered_bits(values[i]); };
  const auto is_number = [&](size_t i) { return !std::isnan(values[i]); };
  Border border = find_border(
      values.size(), double(k), key, [](size_t) { return 1.0; }, is_number);
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_number(i) && take(border, key(i), 1)) keep(i);
  }
  return found;
}

int32_t likeliest(std::span<const float> logits, ThreadPool* helpers) {
  BlockMaxima room;
  std::span<const float> where = logits;
  size_t begin = 0;
  if (blocks_of(logits) <= kMostBlocks) {
    const auto maxima = block_maxima(logits, helpers, room);
    const auto block = std::find(maxima.begin(), maxima.end(), largest(maxima)) - maxima.begin();
    where = block_of(logits, block);
    begin = static_cast<size_t>(block * kBlock);
  }
  const float best = largest(where);
  if (!(best > -kInfinity)) return -1;
  return static_cast<int32_t>(begin + static_cast<size_t>(std::find(where.begin(), where.end(), best) - where.begin()));
}

}  // namespace millrace
