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

// The states of one slot lie together; the first one begins the record.
std::byte* record(const StateCache& state, int32_t slot) { return state.slot(0).at(slot); }
size_t record_bytes(const StateCache& state) { return state.has_slots() ? state.slot(0).stride : 0; }
size_t snapshot_bytes(const StateCache& state) { return sizeof(int32_t) + record_bytes(state); }

// The two deepest snapshots of the tokens, the deepest first.
std::vector<PrefixTree::Resume> snapshots_of(const StateCache& state, PrefixTree& tree,
                                             std::span<const int32_t> tokens) {
  std::vector<PrefixTree::Resume> found;
  while (state.has_slots() && found.size() < 2) {
    const auto snapshot = tree.deepest_snapshot(tree.root({}), tokens);
    if (snapshot.tokens == 0) break;
    found.push_back(snapshot);
    tokens = tokens.first(static_cast<size_t>(snapshot.tokens) - 1);
  }
  return found;
}

// Returns the number of tokens whose pages are in the tree now.
int32_t restore_pages(StateCache& state, PrefixTree& tree, Device& device, PrefixTree::Node* node,
                      std::span<const int32_t> tokens, std::span<const std::byte> pages, std::byte* staging) {
  const auto block = static_cast<size_t>(state.options().block_size);
  const size_t page_bytes = saved_page_bytes(state);
  int32_t restored = 0;
  for (; !tokens.empty(); pages = pages.subspan(page_bytes)) {
    const auto held = tokens.first(std::min(block, tokens.size()));
    PrefixTree::Node* known = tree.find(node, held);
    const bool begins = held.size() < block && tree.longest_beginning(node, held).tokens == std::ssize(held);
    if (known == nullptr && !begins) {
      const auto page = state.blocks().take();
      if (!page) break;
      if (page_bytes > 0) std::memcpy(staging, pages.data(), page_bytes);
      write_page(state, *page, device, staging);
      if (held.size() == block) {
        known = tree.insert(node, held, *page);
      } else {
        tree.insert_beginning(node, held, *page);
      }
      state.blocks().give_back(*page);  // the tree holds it now
    }
    node = known;
    restored += static_cast<int32_t>(held.size());
    tokens = tokens.subspan(held.size());
  }
  return restored;
}

// The pages of the tokens are in the tree.
void keep_snapshot(PrefixTree& tree, PrefixTree::Node* node, std::span<const int32_t> tokens, size_t block, Slot slot) {
  for (; tokens.size() >= block; tokens = tokens.subspan(block)) node = tree.find(node, tokens.first(block));
  tree.keep_snapshot(node, tokens, std::move(slot));
}

}  // namespace

size_t saved_page_bytes(const StateCache& state) {
  size_t total = 0;
  each_part(state, 0, [&](std::byte*, size_t bytes) { total += bytes; });
  return total;
}

int32_t SavedPrefix::resumes_at(int32_t common) const {
  if (stops.empty()) return std::min(common, tokens);
  int32_t best = 0;
  for (const int32_t stop : stops) best = stop <= common ? std::max(best, stop) : best;
  return best;
}

SavedPrefix save_prefix(StateCache& state, PrefixTree& tree, Device& device, std::span<const int32_t> tokens) {
  PrefixTree::Path path;
  path.snapshots = snapshots_of(state, tree, tokens);
  if (state.has_slots()) {
    if (path.snapshots.empty()) return {};
    tokens = tokens.first(static_cast<size_t>(path.snapshots.front().tokens));
    std::ranges::reverse(path.snapshots);
  }
  const auto block = static_cast<size_t>(state.options().block_size);
  const auto add = [&](int32_t page, size_t held) {
    path.pages.push_back(page);
    path.tokens.insert(path.tokens.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(held));
    tokens = tokens.subspan(held);
  };
  PrefixTree::Node* node = tree.root({});
  while (tokens.size() >= block) {
    PrefixTree::Node* next = tree.find(node, tokens.first(block));
    if (next == nullptr) break;
    add(PrefixTree::page(next), block);
    node = next;
  }
  const auto rest = tree.longest_beginning(node, tokens.first(std::min(block, tokens.size())));
  if (rest.tokens > 0) add(rest.page, static_cast<size_t>(rest.tokens));
  return save_path(state, device, path);
}

SavedPrefix save_path(const StateCache& state, Device& device, const PrefixTree::Path& path) {
  SavedPrefix saved;
  const auto block = static_cast<size_t>(state.options().block_size);
  auto tokens = path.tokens.size();
  if (state.has_slots()) {
    if (path.snapshots.empty()) return saved;
    tokens = std::min(tokens, static_cast<size_t>(path.snapshots.back().tokens));
  }
  const size_t pages = (tokens + block - 1) / block, page_bytes = saved_page_bytes(state);
  const size_t snapshots = state.has_slots() ? std::min<size_t>(2, path.snapshots.size()) : 0;
  Arena staging("a page of a session", std::max(page_bytes, record_bytes(state)), device.staging());
  std::byte* buffer = staging.take(std::max(page_bytes, record_bytes(state)));
  saved.tokens = static_cast<int32_t>(tokens);
  saved.pages.reserve(pages * page_bytes + snapshots * snapshot_bytes(state));
  for (size_t i = 0; i < pages; ++i) {
    read_page(state, path.pages[i], device, buffer);
    saved.pages.insert(saved.pages.end(), buffer, buffer + page_bytes);
  }
  for (size_t i = 0; i < snapshots; ++i) {
    const PrefixTree::Resume& snapshot = path.snapshots[path.snapshots.size() - 1 - i];
    device.enqueue_read(buffer, record(state, snapshot.slot), record_bytes(state));
    device.finish();
    const auto* count = reinterpret_cast<const std::byte*>(&snapshot.tokens);
    saved.stops.push_back(snapshot.tokens);
    saved.pages.insert(saved.pages.end(), count, count + sizeof snapshot.tokens);
    saved.pages.insert(saved.pages.end(), buffer, buffer + record_bytes(state));
  }
  return saved;
}

int32_t restore_prefix(StateCache& state, PrefixTree& tree, Device& device, std::span<const int32_t> tokens,
                       std::span<const std::byte> bytes, const PrefixKey& key, int32_t most) {
  const auto block = static_cast<size_t>(state.options().block_size);
  const size_t page_bytes = saved_page_bytes(state), pages = (tokens.size() + block - 1) / block;
  if (tokens.empty() || bytes.size() < pages * page_bytes) return 0;
  auto snapshots = bytes.subspan(pages * page_bytes);
  if (state.has_slots() ? snapshots.empty() || snapshots.size() % snapshot_bytes(state) != 0 : !snapshots.empty())
    return 0;
  Arena staging("a page of a session", std::max(page_bytes, record_bytes(state)), device.staging());
  std::byte* buffer = staging.take(std::max(page_bytes, record_bytes(state)));
  tokens = tokens.first(std::min(tokens.size(), static_cast<size_t>(most)));
  const int32_t restored = restore_pages(state, tree, device, tree.root(key), tokens, bytes, buffer);
  if (!state.has_slots()) return restored;
  int32_t deepest = 0;
  for (; !snapshots.empty(); snapshots = snapshots.subspan(snapshot_bytes(state))) {
    int32_t count = 0;
    std::memcpy(&count, snapshots.data(), sizeof count);
    if (count < 1 || count > restored) continue;
    const auto known = tokens.first(static_cast<size_t>(count));
    if (tree.deepest_snapshot(tree.root(key), known).tokens == count) {
      deepest = std::max(deepest, count);
      continue;
    }
    Slot slot = state.slots().take();
    if (!slot) continue;
    std::memcpy(buffer, snapshots.data() + sizeof count, record_bytes(state));
    device.enqueue_write(record(state, slot.id()), buffer, record_bytes(state));
    device.finish();
    keep_snapshot(tree, tree.root(key), known, block, std::move(slot));
    deepest = std::max(deepest, count);
  }
  return deepest;
}

}  // namespace millrace
