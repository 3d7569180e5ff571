#include "cache/prefix_tree.h"

#include <algorithm>

#include "base/error.h"

namespace millrace {

class PrefixTree::Node {
 public:
  Node* parent = nullptr;
  int32_t page = -1;
  Children children;
  Children::iterator self;  // in the parent's children
  std::list<Node*>::iterator place;
};

namespace {

int32_t common_beginning(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<int32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

bool PrefixTree::Order::operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

PrefixTree::PrefixTree(BlockPool& pool, int block_size)
    : pool_(pool),
      block_size_(static_cast<size_t>(block_size)),
      short_root_(std::make_unique<Node>()),
      long_root_(std::make_unique<Node>()),
      by_page_(static_cast<size_t>(pool.size()), nullptr) {}

PrefixTree::~PrefixTree() {
  while (!recent_.empty()) remove(recent_.back());
}

int32_t PrefixTree::page(const Node* node) { return node->page; }

PrefixTree::Node* PrefixTree::find(Node* node, std::span<const int32_t> page_tokens) {
  const auto found = node->children.find(page_tokens);
  if (found == node->children.end() || page_tokens.size() != block_size_) return nullptr;
  touch(found->second.get());
  return found->second.get();
}

// Children are in lexicographic order: what agrees longest with `tokens` stands next to where they would stand.
PrefixTree::Beginning PrefixTree::longest_beginning(Node* node, std::span<const int32_t> tokens) {
  Node* best = nullptr;
  Beginning result;
  const auto consider = [&](Children::iterator child) {
    const int32_t agree = common_beginning(child->first, tokens);
    if (agree <= result.tokens) return;
    result = {child->second->page, agree};
    best = child->second.get();
  };
  const auto after = node->children.lower_bound(tokens);
  if (after != node->children.end()) consider(after);
  if (after != node->children.begin()) consider(std::prev(after));
  if (best != nullptr) touch(best);
  return result;
}

PrefixTree::Node* PrefixTree::insert(Node* node, std::span<const int32_t> page_tokens, int32_t page) {
  MR_ASSERT(page_tokens.size() == block_size_);
  if (Node* known = find(node, page_tokens)) return known;
  return add(node, page_tokens, page);
}

void PrefixTree::insert_beginning(Node* node, std::span<const int32_t> tokens, int32_t page) {
  if (tokens.empty() || longest_beginning(node, tokens).tokens == static_cast<int32_t>(tokens.size())) return;
  add(node, tokens, page);
}

PrefixTree::Node* PrefixTree::add(Node* parent, std::span<const int32_t> tokens, int32_t page) {
  if (Node* shorter = by_page_[static_cast<size_t>(page)]) remove(shorter);
  const auto [at, is_new] = parent->children.try_emplace({tokens.begin(), tokens.end()}, std::make_unique<Node>());
  MR_ASSERT(is_new);
  Node* node = at->second.get();
  node->parent = parent;
  node->page = page;
  node->self = at;
  node->place = recent_.insert(recent_.end(), node);
  by_page_[static_cast<size_t>(page)] = node;
  pool_.share(page);
  touch(node);
  return node;
}

// A node without children: eviction goes from the least recent one, and what follows a node is less recent.
void PrefixTree::remove(Node* node) {
  MR_ASSERT(node->children.empty());
  by_page_[static_cast<size_t>(node->page)] = nullptr;
  recent_.erase(node->place);
  pool_.give_back(node->page);
  node->parent->children.erase(node->self);
}

void PrefixTree::touch(Node* node) {
  for (; node->parent != nullptr; node = node->parent) recent_.splice(recent_.begin(), recent_, node->place);
}

int32_t PrefixTree::evict(int32_t pages) {
  int32_t freed = 0;
  for (auto at = recent_.end(); freed < pages && at != recent_.begin();) {
    Node* node = *--at;
    if (pool_.references(node->page) > 1 || !node->children.empty()) continue;
    at = std::next(at);
    remove(node);
    ++freed;
  }
  return freed;
}

int32_t PrefixTree::evictable() const {
  return static_cast<int32_t>(
      std::count_if(recent_.begin(), recent_.end(), [&](const Node* n) { return pool_.references(n->page) == 1; }));
}

}  // namespace millrace
