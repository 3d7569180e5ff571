#include "engine/saved_prefix.h"

#include <algorithm>
#include <cstring>

#include "base/function_ref.h"
#include "tensor/arena.h"

namespace millrace {
namespace {

// Visits the memory of one page in the order of the file.
void each_part(const StateCache& state, int32_t page, FunctionRef<void(std::byte* part, size_t bytes)> visit) {
  for (int i = 0; i < state.paged_states(); ++i) {
    const KvLayer layer = state.paged(i);
    const size_t key = layer.key_offset(1, 0, 0), value = layer.value_offset(1, 0, 0);
    visit(layer.keys + static_cast<size_t>(page) * key, key);
    if (!layer.latent) visit(layer.values + static_cast<size_t>(page) * value, value);
  }
}

void read_page(const StateCache& state, int32_t page, Device& device, std::byte* staging) {
  each_part(state, page, [&](std::byte* part, size_t bytes) {
    device.enqueue_read(staging, part, bytes);
    staging += bytes;
  });
  device.finish();
}

void write_page(const StateCache& state, int32_t page, Device& device, const std::byte* staging) {
  each_part(state, page, [&](std::byte* part, size_t bytes) {
    device.enqueue_write(part, staging, bytes);
    staging += bytes;
  });
  device.finish();  // the next page reuses the staging buffer
}

}  // namespace

size_t saved_page_bytes(const StateCache& state) {
  size_t total = 0;
  each_part(state, 0, [&](std::byte*, size_t bytes) { total += bytes; });
  return total;
}

SavedPrefix save_prefix(StateCache& state, PrefixTree& tree, Device& device, std::span<const int32_t> tokens) {
  SavedPrefix saved;
  if (state.has_slots()) return saved;
  const auto block = static_cast<size_t>(state.options().block_size);
  const size_t page_bytes = saved_page_bytes(state);
  Arena staging("a page of a session", page_bytes, device.staging());
  std::byte* buffer = staging.take(page_bytes);
  const auto add = [&](int32_t page, int32_t held) {
    read_page(state, page, device, buffer);
    saved.pages.insert(saved.pages.end(), buffer, buffer + page_bytes);
    saved.tokens += held;
  };
  PrefixTree::Node* node = tree.root({});
  while (tokens.size() >= block) {
    PrefixTree::Node* next = tree.find(node, tokens.first(block));
    if (next == nullptr) break;
    add(PrefixTree::page(next), static_cast<int32_t>(block));
    node = next;
    tokens = tokens.subspan(block);
  }
  const auto rest = tree.longest_beginning(node, tokens.first(std::min(block, tokens.size())));
  if (rest.tokens > 0) add(rest.page, rest.tokens);
  return saved;
}

int32_t restore_prefix(StateCache& state, PrefixTree& tree, Device& device, std::span<const int32_t> tokens,
                       std::span<const std::byte> pages) {
  const auto block = static_cast<size_t>(state.options().block_size);
  const size_t page_bytes = saved_page_bytes(state);
  if (state.has_slots() || pages.size() != (tokens.size() + block - 1) / block * page_bytes) return 0;
  Arena staging("a page of a session", page_bytes, device.staging());
  std::byte* buffer = staging.take(page_bytes);
  PrefixTree::Node* node = tree.root({});
  int32_t restored = 0;
  while (!tokens.empty()) {
    const auto page = state.blocks().take();
    if (!page) break;
    std::memcpy(buffer, pages.data(), page_bytes);
    write_page(state, *page, device, buffer);
    const auto held = tokens.first(std::min(block, tokens.size()));
    if (held.size() == block) {
      node = tree.insert(node, held, *page);
    } else {
      tree.insert_beginning(node, held, *page);
    }
    state.blocks().give_back(*page);  // the tree holds it now
    restored += static_cast<int32_t>(held.size());
    tokens = tokens.subspan(held.size());
    pages = pages.subspan(page_bytes);
  }
  return restored;
}

}  // namespace millrace
