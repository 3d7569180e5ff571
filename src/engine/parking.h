// Parked sessions of one engine. Their state stays in the prefix tree while the pages last; before it is evicted it is
// copied to ParkedStates, from where it returns when a prompt begins with its tokens.
#pragma once

#include <span>

#include "cache/prefix_tree.h"
#include "cache/state_cache.h"
#include "engine/parked_states.h"
#include "hardware/device.h"

namespace millrace {

class Parking {
 public:
  Parking(StateCache& state, PrefixTree& tree, Device& device, ParkedStates& states);
  ~Parking() { tree_.on_leaving(nullptr); }
  Parking(const Parking&) = delete;

  // The session of these tokens waits for its client. Its last tokens were perhaps never computed.
  void park(const PrefixKey& key, std::span<const int32_t> tokens);
  void forget(const PrefixKey& key, std::span<const int32_t> tokens);  // it has gone on
  void save_all();                                                     // copies every parked state out of the tree

  // The state from which a sequence with these tokens can resume; `fetched` was read from disk for it and may be null.
  ParkedStates::Found find(const PrefixKey& key, std::span<const int32_t> tokens, const ParkedStates::Shared& fetched);
  // Puts it into the tree, as far as free pages and slots allow, and parks it there.
  void restore(const ParkedStates::Found& found);

  ParkedStates::Found place(const PrefixKey& key, std::span<const int32_t> tokens);
  ParkStats stats() const;

 private:
  void save(const PrefixTree::Node* end);
  int32_t resumes_in_tree(const PrefixKey& key, std::span<const int32_t> tokens) const;

  StateCache& state_;
  PrefixTree& tree_;
  Device& device_;
  ParkedStates& states_;
};

}  // namespace millrace
