#include "engine/parking.h"

#include <algorithm>
#include <new>

#include "base/log.h"

namespace millrace {

Parking::Parking(StateCache& state, PrefixTree& tree, Device& device, ParkedStates& states)
    : state_(state), tree_(tree), device_(device), states_(states) {
  tree_.on_leaving([this](const PrefixTree::Node* end) { save(end); });
}

void Parking::park(const PrefixKey& key, std::span<const int32_t> tokens) {
  if (const auto end = tree_.end_of(key, tokens); end.node != nullptr) tree_.park(PrefixTree::page(end.node));
}

void Parking::forget(const PrefixKey& key, std::span<const int32_t> tokens) {
  if (const auto end = tree_.end_of(key, tokens); end.node != nullptr) tree_.park(PrefixTree::page(end.node), false);
  states_.forget(key, tokens);
}

void Parking::save_all() {
  for (const PrefixTree::Node* end : tree_.parked_ends()) {
    tree_.park(PrefixTree::page(end), false);
    save(end);
  }
}

// A state that cannot be copied is computed again.
void Parking::save(const PrefixTree::Node* end) {
  try {
    PrefixTree::Path path = tree_.path_to(end);
    ParkedState state{path.key, {}, save_path(state_, device_, path)};
    if (state.saved.tokens == 0) return;
    path.tokens.resize(static_cast<size_t>(state.saved.tokens));
    state.tokens = std::move(path.tokens);
    states_.put(std::move(state));
  } catch (const std::bad_alloc&) {
    log().warn("a parked session is dropped and will be computed again: memory is short");
  }
}

ParkedStates::Found Parking::find(const PrefixKey& key, std::span<const int32_t> tokens,
                                  const ParkedStates::Shared& fetched) {
  ParkedStates::Found found = states_.find(key, tokens);
  if (found.state == nullptr && fetched != nullptr && fetched->key == key) {
    const auto common = std::mismatch(tokens.begin(), tokens.end(), fetched->tokens.begin(), fetched->tokens.end());
    found = {fetched, fetched->saved.resumes_at(static_cast<int32_t>(common.first - tokens.begin()))};
  }
  return found;
}

void Parking::restore(const ParkedStates::Found& found) {
  const ParkedState& state = *found.state;
  const auto tokens = std::span(state.tokens).first(static_cast<size_t>(state.saved.tokens));
  const int32_t restored = restore_prefix(state_, tree_, device_, tokens, state.saved.pages, state.key, found.tokens);
  if (restored < found.tokens) return;
  if (restored == state.saved.tokens) park(state.key, tokens);
  states_.restored(state, restored);
}

int32_t Parking::resumes_in_tree(const PrefixKey& key, std::span<const int32_t> tokens) const {
  const auto end = tree_.end_of(key, tokens);
  if (end.node == nullptr || !state_.has_slots()) return end.tokens;
  int32_t deepest = 0;
  for (const auto& snapshot : tree_.path_to(end.node).snapshots) {
    if (snapshot.tokens <= end.tokens) deepest = snapshot.tokens;
  }
  return deepest;
}

ParkedStates::Found Parking::place(const PrefixKey& key, std::span<const int32_t> tokens) {
  const int32_t here = resumes_in_tree(key, tokens);
  ParkedStates::Found found = states_.find(key, tokens);
  if (here > 0 && here >= found.tokens) return {nullptr, here, ParkPlace::Device};
  found.state = nullptr;
  return found;
}

ParkStats Parking::stats() const {
  ParkStats stats = states_.stats();
  stats.pages = tree_.parked_pages();
  return stats;
}

}  // namespace millrace
