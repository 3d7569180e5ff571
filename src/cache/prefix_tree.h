// Finds cached state by the tokens it was computed from: a radix tree whose edges are pages. Sequences that begin alike
// share full pages; a page that agrees only in part is copied and filled on. Pages that no sequence holds are evicted,
// the least recently used first, when the pool needs them.
//
// Where a model has recurrent state, a sequence can begin only where a snapshot of that state exists. The tree owns the
// snapshots: each belongs to the page that holds its last token.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/block_pool.h"
#include "cache/slot_pool.h"

namespace millrace {

// The inputs besides its tokens that determine the state of a prefix.
struct PrefixKey {
  bool long_rope = false;  // RoPE with the factors of sequences beyond the original context
  std::string adapter;     // empty: the model's own weights

  friend auto operator<=>(const PrefixKey&, const PrefixKey&) = default;
};

class PrefixTree {
 public:
  class Node;  // the tokens from the beginning up to the end of one page

  PrefixTree(BlockPool& pool, int block_size);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;

  // Where all sequences with this key begin. Valid until the next evict(), which drops roots without pages.
  Node* root(const PrefixKey& key);

  // The node after one more page with exactly these tokens; null: there is none.
  Node* find(Node* node, std::span<const int32_t> page_tokens);
  static int32_t page(const Node* node);
  static Node* before(const Node* node);  // the node of the page before; null: the root
  // Length of the longest beginning of `tokens` whose pages are in the tree. `root`: where the tokens begin.
  int32_t known(Node* root, std::span<const int32_t> tokens);

  // Of the pages after `node` the one that begins with the most of `tokens`.
  struct Beginning {
    int32_t page = -1;
    int32_t tokens = 0;  // how many agree; 0: no page does
  };
  Beginning longest_beginning(Node* node, std::span<const int32_t> tokens);

  // Keeps a full page and returns the node of these tokens. If the node existed already, the caller must use that
  // node's page and give back its own. A holder of a node's page must also hold the pages of all nodes before it.
  Node* insert(Node* node, std::span<const int32_t> page_tokens, int32_t page);
  // Keeps the beginning of a page that its sequence may still fill; more of the same page may be inserted later.
  void insert_beginning(Node* node, std::span<const int32_t> tokens, int32_t page);

  int32_t evict(int32_t pages);  // frees up to this many that no sequence holds; returns how many
  int32_t evictable() const;
  int32_t pages() const { return static_cast<int32_t>(recent_.size()); }
  size_t roots() const { return roots_.size(); }

  // The snapshot of the longest beginning of `tokens` that has one. `root`: where the tokens begin.
  struct Resume {
    int32_t tokens = 0;  // that the state has taken in; 0: there is no snapshot
    int32_t slot = -1;
  };
  Resume deepest_snapshot(Node* root, std::span<const int32_t> tokens);
  // Keeps the state after the page of `node` and `tokens` of the page behind it, which must be in the tree.
  void keep_snapshot(Node* node, std::span<const int32_t> tokens, Slot slot);
  bool evict_snapshot();  // the least recently used one; its page stays. False: there is none.
  int32_t snapshots() const { return static_cast<int32_t>(snapshots_.size()); }

  // A parked page ends the state of a session that will go on. Before that page or a snapshot on it is evicted,
  // `leaving` is called, and the page is not parked any more. `leaving` may read the tree and must not use find(),
  // known() or other functions that mark pages as used.
  using OnLeaving = std::function<void(const Node*)>;
  void on_leaving(OnLeaving leaving) { leaving_ = std::move(leaving); }
  void park(int32_t page, bool parked = true);
  int32_t parked_pages() const { return parked_pages_; }
  std::vector<const Node*> parked_ends() const;

  // The functions below do not mark pages as used.
  struct End {
    const Node* node = nullptr;  // whose page holds the last token that the tree has; null: the tree has none
    int32_t tokens = 0;          // that the tree has
  };
  End end_of(const PrefixKey& key, std::span<const int32_t> tokens) const;
  struct Path {  // from the beginning to the end of one page
    PrefixKey key;
    std::vector<int32_t> tokens, pages;
    std::vector<Resume> snapshots;  // on these pages, the deepest last
  };
  Path path_to(const Node* node) const;

 private:
  struct Order {
    using is_transparent = void;
    bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const;
  };
  using Children = std::map<std::vector<int32_t>, std::unique_ptr<Node>, Order>;
  struct Snapshot {
    Node* node;
    int32_t tokens;  // of the node's page
    Slot slot;
  };

  Node* add(Node* parent, std::span<const int32_t> tokens, int32_t page);
  void remove(Node* node);
  void touch(Node* node);
  void leave(const Node* node);

  BlockPool& pool_;
  const size_t block_size_;
  std::map<PrefixKey, std::unique_ptr<Node>> roots_;
  std::list<Node*> recent_;        // most recently used first; a node always stands before those after it in the tree
  std::vector<Node*> by_page_;     // a page is in one node at most
  std::list<Snapshot> snapshots_;  // most recently used first
  OnLeaving leaving_;
  std::vector<bool> parked_;  // by page
  int32_t parked_pages_ = 0;
};

}  // namespace millrace
