// The pages that outlive their sequences, found by the tokens they hold: a radix tree whose edges are pages. Sequences
// that begin alike share its full pages; a page that agrees only in part is copied and filled on. Pages that no
// sequence holds are given up, the least recently used first, when the pool needs them.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cache/block_pool.h"

namespace millrace {

class PrefixTree {
 public:
  class Node;  // the tokens from the beginning up to the end of one page

  PrefixTree(BlockPool& pool, int block_size);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;

  // Where all sequences begin. What pages hold depends on more than tokens where a model turns long sequences by other
  // frequencies: those have a root of their own.
  Node* root(bool is_long) { return is_long ? long_root_.get() : short_root_.get(); }

  // The node after one more page with exactly these tokens; null: there is none.
  Node* find(Node* node, std::span<const int32_t> page_tokens);
  static int32_t page(const Node* node);

  // Of the pages after `node` the one that begins with the most of `tokens`.
  struct Beginning {
    int32_t page = -1;
    int32_t tokens = 0;  // how many agree; 0: no page does
  };
  Beginning longest_beginning(Node* node, std::span<const int32_t> tokens);

  // Keeps a full page. Returns the node that has these tokens: where there was one already, the caller should go on
  // with that one's page and give back its own. Whoever holds a node's page must hold those of all nodes before it too.
  Node* insert(Node* node, std::span<const int32_t> page_tokens, int32_t page);
  // Keeps the beginning of a page that may still be filled by its sequence; more of the same page may be inserted
  // later.
  void insert_beginning(Node* node, std::span<const int32_t> tokens, int32_t page);

  int32_t evict(int32_t pages);  // frees up to this many that no sequence holds; returns how many
  int32_t evictable() const;
  int32_t pages() const { return static_cast<int32_t>(recent_.size()); }

 private:
  struct Order {
    using is_transparent = void;
    bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const;
  };
  using Children = std::map<std::vector<int32_t>, std::unique_ptr<Node>, Order>;

  Node* add(Node* parent, std::span<const int32_t> tokens, int32_t page);
  void remove(Node* node);
  void touch(Node* node);

  BlockPool& pool_;
  const size_t block_size_;
  std::unique_ptr<Node> short_root_, long_root_;
  std::list<Node*> recent_;     // most recently used first; a node always stands before those after it in the tree
  std::vector<Node*> by_page_;  // a page is in one node at most
};

}  // namespace millrace
