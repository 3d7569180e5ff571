#include "cache/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "cache/block_table.h"
#include "fresh_seed.h"

namespace millrace {
namespace {

constexpr int kBlock = 4;

std::vector<int32_t> count_from(int32_t first, int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class PrefixTreeTest : public testing::Test {
 protected:
  BlockPool pool_{32};
  SlotPool slots_{8};
  PrefixTree tree_{pool_, kBlock};
  PrefixTree::Node* root_ = tree_.root({});

  int32_t take() { return *pool_.take(); }
};

TEST_F(PrefixTreeTest, FindsWholePagesAndTheBeginningsOfOthers) {
  const auto tokens = count_from(10, kBlock);
  const int32_t page = take();
  PrefixTree::Node* node = tree_.insert(root_, tokens, page);
  EXPECT_EQ(PrefixTree::page(node), page);
  EXPECT_EQ(tree_.find(root_, tokens), node);
  EXPECT_EQ(tree_.find(node, tokens), nullptr) << "the same tokens after themselves are another sequence";
  EXPECT_EQ(tree_.find(tree_.root({.long_rope = true}), tokens), nullptr) << "long sequences have pages of their own";
  const auto begins = tree_.longest_beginning(root_, std::vector<int32_t>{10, 11, 99});
  EXPECT_EQ(begins.page, page);
  EXPECT_EQ(begins.tokens, 2);
  EXPECT_EQ(tree_.longest_beginning(root_, std::vector<int32_t>{11}).tokens, 0);
}

TEST_F(PrefixTreeTest, TheLongestBeginningIsFoundAmongMany) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int32_t> token(0, 2);
  std::vector<std::vector<int32_t>> all;
  for (int i = 0; i < 20; ++i) {
    std::vector<int32_t> tokens(kBlock);
    for (auto& t : tokens) t = token(random);
    const int32_t page = take();
    if (PrefixTree::page(tree_.insert(root_, tokens, page)) == page) all.push_back(tokens);
    pool_.give_back(page);
  }
  for (int i = 0; i < 200; ++i) {
    std::vector<int32_t> asked(static_cast<size_t>(1 + i % kBlock));
    for (auto& t : asked) t = token(random);
    int32_t best = 0;
    for (const auto& tokens : all) {
      const auto differs = std::mismatch(asked.begin(), asked.end(), tokens.begin()).first;
      best = std::max(best, static_cast<int32_t>(differs - asked.begin()));
    }
    EXPECT_EQ(tree_.longest_beginning(root_, asked).tokens, best);
  }
}

TEST_F(PrefixTreeTest, AnotherPageWithTheSameTokensIsNotKept) {
  const auto tokens = count_from(0, kBlock);
  const int32_t first = take(), second = take();
  PrefixTree::Node* node = tree_.insert(root_, tokens, first);
  EXPECT_EQ(tree_.insert(root_, tokens, second), node);
  EXPECT_EQ(pool_.references(first), 2);
  EXPECT_EQ(pool_.references(second), 1);
}

TEST_F(PrefixTreeTest, APageGrowsFromABeginningToAWhole) {
  const auto tokens = count_from(0, kBlock);
  const int32_t page = take();
  tree_.insert_beginning(root_, std::span(tokens).first(2), page);
  EXPECT_EQ(tree_.find(root_, tokens), nullptr);
  EXPECT_EQ(tree_.longest_beginning(root_, tokens).tokens, 2);
  PrefixTree::Node* node = tree_.insert(root_, tokens, page);
  EXPECT_EQ(tree_.find(root_, tokens), node);
  EXPECT_EQ(tree_.pages(), 1) << "one page, one node";
  EXPECT_EQ(pool_.references(page), 2);
  const int32_t other = take();
  tree_.insert_beginning(root_, std::span(tokens).first(3), other);
  EXPECT_EQ(tree_.pages(), 1) << "what is known already is not kept twice";
}

TEST_F(PrefixTreeTest, EvictsTheLeastRecentlyUsedThatNobodyHolds) {
  std::vector<int32_t> pages;
  std::vector<PrefixTree::Node*> nodes{root_};
  for (int32_t i = 0; i < 3; ++i) {  // a chain of three pages
    pages.push_back(take());
    nodes.push_back(tree_.insert(nodes.back(), count_from(100 * i, kBlock), pages.back()));
  }
  pages.push_back(take());
  tree_.insert(root_, count_from(1000, kBlock), pages.back());  // a page beside the chain, used last
  EXPECT_EQ(tree_.evictable(), 0) << "all are held";
  EXPECT_EQ(tree_.evict(4), 0);
  for (const int32_t page : pages) pool_.give_back(page);
  EXPECT_EQ(tree_.evictable(), 4);
  EXPECT_EQ(tree_.evict(1), 1);
  EXPECT_EQ(tree_.find(nodes[2], count_from(200, kBlock)), nullptr) << "the end of the older chain goes first";
  ASSERT_EQ(tree_.find(nodes[1], count_from(100, kBlock)), nodes[2]);  // now the chain is more recent
  EXPECT_EQ(tree_.evict(1), 1);
  EXPECT_EQ(tree_.find(root_, count_from(1000, kBlock)), nullptr);
  pool_.share(pages[0]);  // a sequence holds the first page
  EXPECT_EQ(tree_.evict(10), 1);
  EXPECT_EQ(tree_.find(root_, count_from(0, kBlock)), nodes[1]);
  pool_.give_back(pages[0]);
}

TEST_F(PrefixTreeTest, KeysKeepPrefixesApart) {
  const auto tokens = count_from(10, kBlock);
  const PrefixKey keys[] = {{}, {.long_rope = true}, {.adapter = "a"}, {.adapter = "b"}, {true, "a"}};
  std::vector<int32_t> pages;
  for (const PrefixKey& key : keys) {
    EXPECT_EQ(tree_.find(tree_.root(key), tokens), nullptr);
    pages.push_back(take());
    tree_.insert(tree_.root(key), tokens, pages.back());
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    const PrefixTree::Node* found = tree_.find(tree_.root(keys[i]), tokens);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(PrefixTree::page(found), pages[i]);
    EXPECT_EQ(tree_.longest_beginning(tree_.root(keys[i]), tokens).page, pages[i]);
  }
  EXPECT_EQ(tree_.roots(), 5u);
  for (const int32_t page : pages) pool_.give_back(page);
  EXPECT_EQ(tree_.evict(2), 2);
  EXPECT_EQ(tree_.roots(), 3u) << "a root goes with its last page";
  EXPECT_EQ(tree_.find(tree_.root(keys[0]), tokens), nullptr) << "the least recently used are gone";
  EXPECT_NE(tree_.find(tree_.root(keys[4]), tokens), nullptr);
}

TEST_F(PrefixTreeTest, TheDeepestSnapshotOfABeginningIsFound) {
  const auto tokens = count_from(0, 3 * kBlock);
  const auto page_of = [&](int i) { return std::span(tokens).subspan(static_cast<size_t>(i) * kBlock, kBlock); };
  const auto deepest = [&](std::span<const int32_t> known) { return tree_.deepest_snapshot(root_, known); };
  PrefixTree::Node* first = tree_.insert(root_, page_of(0), take());
  tree_.insert(first, page_of(1), take());
  EXPECT_EQ(deepest(tokens).tokens, 0) << "pages alone are no snapshot";
  Slot at_page = slots_.take(), inside = slots_.take();
  const int32_t at_page_id = at_page.id(), inside_id = inside.id();
  tree_.keep_snapshot(first, {}, std::move(at_page));
  EXPECT_EQ(deepest(tokens).tokens, kBlock);
  tree_.keep_snapshot(first, page_of(1).first(3), std::move(inside));  // in the middle of the second page
  EXPECT_EQ(deepest(tokens).tokens, kBlock + 3);
  EXPECT_EQ(deepest(tokens).slot, inside_id);
  EXPECT_EQ(deepest(std::span(tokens).first(kBlock + 2)).slot, at_page_id) << "nothing of a later token";
  EXPECT_EQ(deepest(std::span(tokens).first(kBlock - 1)).tokens, 0);
  auto other = tokens;
  other[kBlock + 2] = 99;
  EXPECT_EQ(deepest(other).tokens, kBlock) << "nothing of another token";
}

TEST_F(PrefixTreeTest, KnowsHowManyTokensItHasPagesFor) {
  const auto tokens = count_from(0, 3 * kBlock);
  const auto known = std::span(tokens);
  EXPECT_EQ(tree_.known(root_, known), 0);
  PrefixTree::Node* first = tree_.insert(root_, known.first(kBlock), take());
  EXPECT_EQ(PrefixTree::before(first), nullptr);
  PrefixTree::Node* second = tree_.insert(first, known.subspan(kBlock, kBlock), take());
  EXPECT_EQ(PrefixTree::before(second), first);
  tree_.insert_beginning(second, known.subspan(2 * kBlock, 2), take());
  EXPECT_EQ(tree_.known(root_, known), 2 * kBlock + 2);
  EXPECT_EQ(tree_.known(root_, known.first(2 * kBlock)), 2 * kBlock);
  EXPECT_EQ(tree_.known(root_, known.first(kBlock + 1)), kBlock + 1);
  auto other = tokens;
  other[kBlock] = 99;
  EXPECT_EQ(tree_.known(root_, other), kBlock);
}

TEST_F(PrefixTreeTest, ASnapshotStaysWhileItsPageIsFilled) {
  const auto tokens = count_from(0, kBlock);
  const int32_t page = take();
  tree_.insert_beginning(root_, std::span(tokens).first(2), page);
  Slot slot = slots_.take();
  const int32_t id = slot.id();
  tree_.keep_snapshot(root_, std::span(tokens).first(2), std::move(slot));
  tree_.insert(root_, tokens, page);
  EXPECT_EQ(tree_.pages(), 1);
  EXPECT_EQ(tree_.deepest_snapshot(root_, tokens).tokens, 2);
  EXPECT_EQ(tree_.deepest_snapshot(root_, tokens).slot, id);
  pool_.give_back(page);
  EXPECT_EQ(tree_.evict(1), 1);
  EXPECT_EQ(slots_.free(), slots_.size()) << "a snapshot goes with its page";
}

TEST_F(PrefixTreeTest, SnapshotsAreEvictedLeastRecentlyUsedFirst) {
  std::vector<std::vector<int32_t>> tokens;
  for (int32_t i = 0; i < 3; ++i) {
    tokens.push_back(count_from(100 * i, kBlock));
    tree_.keep_snapshot(tree_.insert(root_, tokens.back(), take()), {}, slots_.take());
  }
  tree_.deepest_snapshot(root_, tokens[0]);  // used again
  EXPECT_TRUE(tree_.evict_snapshot());
  EXPECT_EQ(tree_.deepest_snapshot(root_, tokens[1]).tokens, 0);
  EXPECT_NE(tree_.find(root_, tokens[1]), nullptr) << "its page stays";
  EXPECT_EQ(tree_.snapshots(), 2);
  EXPECT_TRUE(tree_.evict_snapshot());
  EXPECT_EQ(tree_.deepest_snapshot(root_, tokens[2]).tokens, 0);
  EXPECT_EQ(tree_.deepest_snapshot(root_, tokens[0]).tokens, kBlock);
  EXPECT_TRUE(tree_.evict_snapshot());
  EXPECT_FALSE(tree_.evict_snapshot());
  EXPECT_EQ(slots_.free(), slots_.size());
}

// Compares with a list of all kept snapshots.
TEST_F(PrefixTreeTest, SnapshotsAreFoundAmongMany) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::vector<std::vector<int32_t>> kept;
  const auto random_tokens = [&](size_t most) {
    std::vector<int32_t> tokens(1 + random() % most);
    for (auto& token : tokens) token = static_cast<int32_t>(random() % 2);
    return tokens;
  };
  SlotPool many(1000);
  BlockPool pages(2000);
  PrefixTree tree(pages, kBlock);
  for (int i = 0; i < 300; ++i) {
    const auto asked = random_tokens(14);
    size_t best = 0;
    for (const auto& tokens : kept) {
      if (tokens.size() > asked.size() || !std::equal(tokens.begin(), tokens.end(), asked.begin())) continue;
      best = std::max(best, tokens.size());
    }
    EXPECT_EQ(tree.deepest_snapshot(tree.root({}), asked).tokens, static_cast<int32_t>(best));
    const auto tokens = random_tokens(14);
    PrefixTree::Node* node = tree.root({});
    size_t at = 0;
    for (; at + kBlock <= tokens.size(); at += kBlock)
      node = tree.insert(node, std::span(tokens).subspan(at, kBlock), *pages.take());
    const auto rest = std::span(tokens).subspan(at);
    tree.insert_beginning(node, rest, *pages.take());
    if (tree.deepest_snapshot(tree.root({}), tokens).tokens == std::ssize(tokens)) continue;
    tree.keep_snapshot(node, rest, many.take());
    kept.push_back(tokens);
  }
  EXPECT_EQ(tree.snapshots(), std::ssize(kept));
}

// Random sequences share, extend and leave; every page is free once the tree is empty.
TEST_F(PrefixTreeTest, AllPagesComeBack) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  struct Holder {
    PrefixTree::Node* node;  // null: at the root, which is dropped when the tree is empty
    std::vector<int32_t> pages;
  };
  std::vector<Holder> holders;
  for (int i = 0; i < 2000; ++i) {
    const auto dice = random() % 3;
    if (dice == 0 && holders.size() < 4) {
      holders.push_back({nullptr, {}});
    } else if (dice == 1 && !holders.empty()) {
      Holder& h = holders[random() % holders.size()];
      if (h.pages.size() == 6) continue;
      if (pool_.free() == 0 && tree_.evict(1) == 0) continue;
      const auto tokens = count_from(static_cast<int32_t>(random() % 3), kBlock);
      const int32_t own = take();
      h.node = tree_.insert(h.node != nullptr ? h.node : tree_.root({}), tokens, own);
      const int32_t kept = PrefixTree::page(h.node);
      if (kept != own) {
        pool_.share(kept);
        pool_.give_back(own);
      }
      h.pages.push_back(kept);
    } else if (dice == 2 && !holders.empty()) {
      for (const int32_t page : holders.back().pages) pool_.give_back(page);
      holders.pop_back();
    }
  }
  for (auto& h : holders) {
    for (const int32_t page : h.pages) pool_.give_back(page);
  }
  EXPECT_EQ(tree_.evictable(), tree_.pages());
  const int32_t left = tree_.pages();
  EXPECT_EQ(tree_.evict(1000), left);
  EXPECT_EQ(pool_.free(), pool_.size());
}

}  // namespace
}  // namespace millrace
