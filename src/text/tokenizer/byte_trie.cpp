#include "text/tokenizer/byte_trie.h"

#include <algorithm>

namespace millrace {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries) : nodes_(1), labels_(1) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Job {  // entries [begin, end) share the first `depth` bytes, the path to the node
    size_t begin, end, depth;
  };
  std::vector<Job> level = {{0, entries.size(), 0}};
  for (size_t node = 0; node < level.size(); ++node) {
    auto [begin, end, depth] = level[node];
    for (; begin < end && entries[begin].first.size() == depth; ++begin) nodes_[node].value = entries[begin].second;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = entries[begin].first[depth];
      size_t next = begin;
      while (next < end && entries[next].first[depth] == byte) ++next;
      level.push_back({begin, next, depth + 1});
      nodes_.emplace_back();
      labels_.push_back(static_cast<unsigned char>(byte));
      ++nodes_[node].children;
      begin = next;
    }
  }
  for (uint32_t i = 0; i < nodes_[kRoot].children; ++i) first_level_[labels_[i + 1]] = i + 1;
}

uint32_t ByteTrie::search(uint32_t begin, uint32_t end, unsigned char byte) const {
  const auto first = labels_.begin() + begin, last = labels_.begin() + end;
  const auto found = std::lower_bound(first, last, byte);
  return found != last && *found == byte ? static_cast<uint32_t>(found - labels_.begin()) : kNone;
}

ByteTrie::Found ByteTrie::longest_prefix(std::string_view text) const {
  Found found{0, -1};
  uint32_t node = kRoot;
  for (size_t i = 0; i < text.size(); ++i) {
    node = child(node, static_cast<unsigned char>(text[i]));
    if (node == kNone) break;
    if (value(node) >= 0) found = {i + 1, value(node)};
  }
  return found;
}

}  // namespace millrace
