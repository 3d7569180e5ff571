// A trie from strings to values, for matching at a position of a text.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0, kNone = 0;  // no edge leads to the root, so 0 also means "no node"

  ByteTrie() : nodes_(1), labels_(1) {}
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries);  // of equal strings, the last wins

  uint32_t child(uint32_t node, unsigned char byte) const {
    if (node == kRoot) return first_level_[byte];
    const Node& n = nodes_[node];
    return search(n.first_child, n.first_child + n.children, byte);
  }
  int32_t value(uint32_t node) const { return nodes_[node].value; }  // -1: no string ends here

  struct Found {
    size_t length;
    int32_t value;
  };
  Found longest_prefix(std::string_view text) const;  // length 0: no match

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    int32_t value = -1;
  };
  uint32_t search(uint32_t begin, uint32_t end, unsigned char byte) const;

  std::vector<Node> nodes_;            // breadth first: the children of a node are neighbours
  std::vector<unsigned char> labels_;  // the byte that leads to each node; ascending among siblings
  std::array<uint32_t, 256> first_level_{};
};

}  // namespace millrace
