// The prompt rows of a step: which prompts are computed, how many rows of each, and where their chunks end.
#include <algorithm>
#include <bit>
#include <tuple>

#include "engine/scheduler.h"

namespace millrace {
namespace {

constexpr int32_t kShortPrompt = 1536;    // tokens to compute
constexpr int64_t kEfficientRows = 2048;  // larger chunks are hardly faster

}  // namespace

// Half of the chunk goes to the prompt admitted first, so that long prompts finish. The rest goes to the prompts that
// are due first: a short prompt passes longer ones, but none whose rows it would delay by more than their difference in
// length. Only prompts of up to kShortPrompt tokens may use the larger chunk of PromptLength::Short.
void Scheduler::share_chunk(const Decodes& decodes, int64_t room) {
  DuePrompts due, due_short{.length = PromptLength::Short};
  double decodes_age = 0, oldest = 0;
  int64_t generating = 0;
  for (auto& s : running_) {
    if (s->generating()) {
      decodes_age += now_ - s->arrival();
      ++generating;
      continue;
    }
    skip_known_pages(*s);
    skip_to_snapshot(*s);
    if (computed_by_another(*s) || follows_another(*s)) continue;
    due.past = std::max<int64_t>(due.past, s->computed());
    const bool is_short = s->length() - s->group().cached_tokens <= kShortPrompt;
    prompts_.push_back({s.get(), 0, is_short});
    if (!is_short) continue;
    due_short.rows += s->length() - s->computed();
    oldest = std::max(oldest, now_ - s->arrival());
  }
  if (prompts_.empty() || room <= 0) return;
  const bool lone = limits_.same_chunks && prompts_.size() == 1 && decodes.rows == 0;
  for (const Share& share : prompts_) share.sequence->prefill.stop = next_stop(*share.sequence, lone);
  due_short.past = due.past;
  due_short.age = generating > 0 ? oldest / std::max(decodes_age / static_cast<double>(generating), 1e-6) : 1;
  int64_t for_long = pacer_.chunk(decodes, due, room);
  int64_t left = due_short.rows > 0 ? pacer_.chunk(decodes, due_short, room) : for_long;
  const auto room_of = [&](const Share& share) { return share.is_short ? left : std::min(left, for_long); };
  const auto give = [&](Share& share, int64_t most) {
    const Sequence& s = *share.sequence;
    const int64_t until_stop = s.prefill.stop - s.computed();
    const auto rows = static_cast<int32_t>(std::min(until_stop - share.rows, most));
    share.rows += rows;
    left -= rows;
    if (!share.is_short) for_long -= rows;
  };
  give(prompts_.front(), (room_of(prompts_.front()) + 1) / 2);
  std::sort(prompts_.begin(), prompts_.end(), [](const Share& a, const Share& b) {
    const auto key = [](const Sequence& s) { return std::tuple(s.prefill.due, s.id(), s.choice()); };
    return key(*a.sequence) < key(*b.sequence);
  });
  for (Share& share : prompts_) give(share, room_of(share));
}

// In order of admission: the first prompt always fits, because a step has as many rows as the context.
void Scheduler::share_whole(int64_t room) {
  for (auto& s : running_) {
    const auto rows = static_cast<int32_t>(s->pending().size());
    if (rows > room) return;
    room -= rows;
    prompts_.push_back({s.get(), rows, false});
  }
}

// Where the next chunk of a prompt must end. A lone prompt ends with a chunk of limited size, so that the same prompt
// can repeat that chunk in the same shape at little cost (ChunkMemory). Recurrent state needs a stop for each snapshot:
// shortly before the end, because the next turn of a conversation often rewrites the last tokens; where other prompts
// part; and at a spacing that leaves half of the snapshots to other prompts.
int32_t Scheduler::next_stop(const Sequence& s, bool lone) const {
  int32_t stop = s.length();
  const bool snapshots = kv_.has_slots() && limits_.prefix_cache;
  if (s.generated() > 0 || !(snapshots || (lone && s.request().kind == RequestKind::Generate))) return stop;
  const int32_t last = limits_.last_chunk, latest = s.length() - last / 2;
  const auto stop_at = [&](int32_t position) {
    if (position > s.computed() && position <= latest) stop = std::min(stop, position);
  };
  if (s.length() - s.computed() >= last + last / 2) stop_at(latest / last * last);
  if (!snapshots) return stop;
  stop_at(s.prefill.branch);
  if (const int32_t spacing = snapshot_spacing(s.length()); spacing > 0)
    stop_at((s.computed() / spacing + 1) * spacing);
  return stop;
}

// Powers of two, so that prompts of different lengths stop at the same places. 0: no snapshots inside of prompts.
int32_t Scheduler::snapshot_spacing(int32_t prompt) const {
  const int64_t snapshots = kv_.slots().size() - limits_.sequences;
  if (snapshots < 2) return 0;
  const int64_t efficient = std::min(limits_.rows / 2, kEfficientRows);
  const auto least = std::max<int64_t>({4 * kv_.options().block_size, efficient, 2 * prompt / snapshots});
  return static_cast<int32_t>(std::bit_ceil(static_cast<uint64_t>(least)));
}

// Skips pages that another sequence computed since this one was admitted. Pages do not contain recurrent state, and a
// lone prompt repeats its last chunk although the tree has its pages.
void Scheduler::skip_known_pages(Sequence& s) {
  if (kv_.has_slots() || s.prefill.lone) return;
  const int32_t block = kv_.options().block_size;
  while (limits_.prefix_cache && s.computed() == s.pages_in_tree * block && s.computed() + block <= s.first_wanted()) {
    const auto at = static_cast<size_t>(s.computed());
    PrefixTree::Node* next = tree_.find(node_of(s), s.tokens().subspan(at, static_cast<size_t>(block)));
    if (next == nullptr) return;
    s.table().replace(static_cast<size_t>(s.pages_in_tree), PrefixTree::page(next));
    s.node = next;
    ++s.pages_in_tree;
    s.advance(block);
    count_cached(s, block);
  }
}

// True if a prompt in this step computes the same next page: waiting for it saves the work.
bool Scheduler::computed_by_another(const Sequence& s) const {
  if (kv_.has_slots()) return false;
  const auto block = static_cast<size_t>(kv_.options().block_size);
  const int32_t page_begin = s.pages_in_tree * kv_.options().block_size;
  if (!limits_.prefix_cache || s.computed() != page_begin || page_begin + kv_.options().block_size > s.first_wanted())
    return false;
  const auto next = s.tokens().subspan(static_cast<size_t>(page_begin), block);
  return std::any_of(prompts_.begin(), prompts_.end(), [&](const Share& other) {
    const Sequence& o = *other.sequence;
    if (o.node != s.node || o.prefix_key != s.prefix_key || o.computed() < s.computed() ||
        o.length() < page_begin + static_cast<int32_t>(block))
      return false;
    return std::ranges::equal(next, o.tokens().subspan(static_cast<size_t>(page_begin), block));
  });
}

// The same for recurrent state. True if a prompt of this step has yet to compute several pages with which `s` begins:
// it stops where the two part and leaves a snapshot there, at which `s` continues (skip_to_snapshot).
bool Scheduler::follows_another(Sequence& s) {
  s.prefill.follows = false;
  if (!kv_.has_slots() || !limits_.prefix_cache || s.computed() != s.prefill.begun_at) return false;
  const int32_t block = kv_.options().block_size;
  const auto own = s.tokens().first(static_cast<size_t>(s.prefill.reuse_end));
  for (const Share& share : prompts_) {
    Sequence& o = *share.sequence;
    if (o.prefix_key != s.prefix_key || o.computed() < s.computed() || o.generated() > 0) continue;
    const auto all = o.tokens();
    const auto agree = std::mismatch(own.begin(), own.end(), all.begin(), all.end()).first - own.begin();
    const int32_t common = static_cast<int32_t>(agree) / block * block;
    if (common <= o.computed() || common < s.computed() + 4 * block) continue;
    o.prefill.branch = o.prefill.branch > o.computed() ? std::min(o.prefill.branch, common) : common;
    s.prefill.follows = true;
    return true;
  }
  return false;
}

void Scheduler::skip_to_snapshot(Sequence& s) {
  if (!s.prefill.follows) return;
  const auto found =
      tree_.deepest_snapshot(tree_.root(s.prefix_key), s.tokens().first(static_cast<size_t>(s.prefill.reuse_end)));
  if (found.tokens <= s.computed()) return;
  const auto block = static_cast<size_t>(kv_.options().block_size);
  const auto known = s.tokens().first(static_cast<size_t>(found.tokens));
  auto page = static_cast<size_t>(s.pages_in_tree);
  for (; (page + 1) * block <= known.size(); ++page) {
    s.node = tree_.find(node_of(s), known.subspan(page * block, block));
    s.table().replace(page, PrefixTree::page(s.node));
  }
  s.pages_in_tree = static_cast<int32_t>(page);
  if (const auto rest = known.subspan(page * block); !rest.empty())
    kv_.copy_page(tree_.longest_beginning(node_of(s), rest).page, s.table().pages()[page]);
  kv_.copy_slot(found.slot, s.slot.id());
  s.slot_tokens = found.tokens;
  count_cached(s, found.tokens - s.computed());
  s.begin_at(found.tokens);
  s.prefill.begun_at = found.tokens;
}

}  // namespace millrace
