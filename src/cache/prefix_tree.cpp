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
  std::vector<std::list<Snapshot>::iterator> snapshots;  // at most one for each number of the page's tokens
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
      by_page_(static_cast<size_t>(pool.size()), nullptr),
      parked_(static_cast<size_t>(pool.size()), false) {}

PrefixTree::~PrefixTree() {
  while (!recent_.empty()) remove(recent_.back());
}

PrefixTree::Node* PrefixTree::root(const PrefixKey& key) {
  auto& root = roots_[key];
  if (root == nullptr) root = std::make_unique<Node>();
  return root.get();
}

int32_t PrefixTree::page(const Node* node) { return node->page; }

PrefixTree::Node* PrefixTree::before(const Node* node) {
  return node->parent->parent == nullptr ? nullptr : node->parent;
}

PrefixTree::Node* PrefixTree::find(Node* node, std::span<const int32_t> page_tokens) {
  const auto found = node->children.find(page_tokens);
  if (found == node->children.end() || page_tokens.size() != block_size_) return nullptr;
  touch(found->second.get());
  return found->second.get();
}

// Children are in lexicographic order, so the longest match with `tokens` is next to their lower bound.
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

int32_t PrefixTree::known(Node* root, std::span<const int32_t> tokens) {
  Node* node = root;
  size_t at = 0;
  for (; at + block_size_ <= tokens.size(); at += block_size_) {
    Node* next = find(node, tokens.subspan(at, block_size_));
    if (next == nullptr) break;
    node = next;
  }
  const auto rest = tokens.subspan(at, std::min(block_size_, tokens.size() - at));
  return static_cast<int32_t>(at) + (rest.empty() ? 0 : longest_beginning(node, rest).tokens);
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
  Node* shorter = by_page_[static_cast<size_t>(page)];
  std::vector<std::list<Snapshot>::iterator> snapshots;
  if (shorter != nullptr) {
    snapshots.swap(shorter->snapshots);  // the page still begins with their tokens
    remove(shorter);
  }
  const auto [at, is_new] = parent->children.try_emplace({tokens.begin(), tokens.end()}, std::make_unique<Node>());
  MR_ASSERT(is_new);
  Node* node = at->second.get();
  node->parent = parent;
  node->page = page;
  node->self = at;
  node->snapshots = std::move(snapshots);
  for (const auto& snapshot : node->snapshots) snapshot->node = node;
  node->place = recent_.insert(recent_.end(), node);
  by_page_[static_cast<size_t>(page)] = node;
  pool_.share(page);
  touch(node);
  return node;
}

// Only nodes without children are removed: eviction begins with the least recent one, and a node's children are less
// recent than the node.
void PrefixTree::remove(Node* node) {
  MR_ASSERT(node->children.empty());
  for (const auto& snapshot : node->snapshots) snapshots_.erase(snapshot);
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
    leave(node);
    at = std::next(at);
    remove(node);
    ++freed;
  }
  if (freed > 0) std::erase_if(roots_, [](const auto& root) { return root.second->children.empty(); });
  return freed;
}

int32_t PrefixTree::evictable() const {
  return static_cast<int32_t>(
      std::count_if(recent_.begin(), recent_.end(), [&](const Node* n) { return pool_.references(n->page) == 1; }));
}

PrefixTree::Resume PrefixTree::deepest_snapshot(Node* root, std::span<const int32_t> tokens) {
  auto best = snapshots_.end();
  size_t best_tokens = 0;
  size_t at = 0;  // tokens before the children of `node`
  for (Node* node = root; node != nullptr && at < tokens.size(); at += block_size_) {
    const auto rest = tokens.subspan(at);
    // False: this child agrees in so few tokens that it and those farther away from `rest` cannot be better.
    const auto consider = [&](const auto& child) {
      const auto agree = static_cast<size_t>(common_beginning(child.first, rest));
      for (const auto& snapshot : child.second->snapshots) {
        const auto count = static_cast<size_t>(snapshot->tokens);
        if (count > agree || at + count <= best_tokens) continue;
        best = snapshot;
        best_tokens = at + count;
      }
      return agree > 0 && at + agree > best_tokens;
    };
    const auto from = node->children.lower_bound(rest);
    for (auto after = from; after != node->children.end() && consider(*after);) ++after;
    for (auto before = from; before != node->children.begin() && consider(*std::prev(before));) --before;
    const auto next = node->children.find(rest.first(std::min(block_size_, rest.size())));
    node = next == node->children.end() ? nullptr : next->second.get();
  }
  if (best == snapshots_.end()) return {};
  snapshots_.splice(snapshots_.begin(), snapshots_, best);
  touch(best->node);
  return {static_cast<int32_t>(best_tokens), best->slot.id()};
}

void PrefixTree::keep_snapshot(Node* node, std::span<const int32_t> tokens, Slot slot) {
  auto count = static_cast<int32_t>(block_size_);
  if (!tokens.empty()) {
    const int32_t page = longest_beginning(node, tokens).page;
    MR_ASSERT(page >= 0);
    node = by_page_[static_cast<size_t>(page)];
    count = static_cast<int32_t>(tokens.size());
  }
  MR_ASSERT(node->parent != nullptr && common_beginning(node->self->first, tokens) == std::ssize(tokens));
  snapshots_.push_front({node, count, std::move(slot)});
  node->snapshots.push_back(snapshots_.begin());
}

bool PrefixTree::evict_snapshot() {
  if (snapshots_.empty()) return false;
  leave(snapshots_.back().node);
  std::erase(snapshots_.back().node->snapshots, std::prev(snapshots_.end()));
  snapshots_.pop_back();
  return true;
}

void PrefixTree::park(int32_t page, bool parked) {
  if (by_page_[static_cast<size_t>(page)] == nullptr || parked_[static_cast<size_t>(page)] == parked) return;
  parked_[static_cast<size_t>(page)] = parked;
  parked_pages_ += parked ? 1 : -1;
}

std::vector<const PrefixTree::Node*> PrefixTree::parked_ends() const {
  std::vector<const Node*> ends;
  for (const Node* node : recent_) {
    if (parked_[static_cast<size_t>(node->page)]) ends.push_back(node);
  }
  return ends;
}

void PrefixTree::leave(const Node* node) {
  if (!parked_[static_cast<size_t>(node->page)]) return;
  park(node->page, false);
  if (leaving_) leaving_(node);
}

PrefixTree::End PrefixTree::end_of(const PrefixKey& key, std::span<const int32_t> tokens) const {
  End end;
  const auto root = roots_.find(key);
  const Node* node = root == roots_.end() ? nullptr : root->second.get();
  while (node != nullptr && !tokens.empty()) {
    const Node* best = nullptr;
    int32_t most = 0;
    const auto consider = [&](Children::const_iterator child) {
      const int32_t agree = common_beginning(child->first, tokens);
      if (agree <= most) return;
      most = agree;
      best = child->second.get();
    };
    const auto after = node->children.lower_bound(tokens);
    if (after != node->children.end()) consider(after);
    if (after != node->children.begin()) consider(std::prev(after));
    if (best == nullptr) break;
    end = {best, end.tokens + most};
    tokens = tokens.subspan(static_cast<size_t>(most));
    node = static_cast<size_t>(most) == block_size_ ? best : nullptr;
  }
  return end;
}

PrefixTree::Path PrefixTree::path_to(const Node* node) const {
  std::vector<const Node*> nodes;
  for (; node->parent != nullptr; node = node->parent) nodes.push_back(node);
  Path path;
  for (const auto& [key, root] : roots_) {
    if (root.get() == node) path.key = key;
  }
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    const auto before = static_cast<int32_t>(path.tokens.size());
    for (const auto& snapshot : (*at)->snapshots)
      path.snapshots.push_back({before + snapshot->tokens, snapshot->slot.id()});
    path.tokens.insert(path.tokens.end(), (*at)->self->first.begin(), (*at)->self->first.end());
    path.pages.push_back((*at)->page);
  }
  std::ranges::sort(path.snapshots, {}, &Resume::tokens);
  return path;
}

}  // namespace millrace
