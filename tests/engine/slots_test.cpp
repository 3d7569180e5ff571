// Sequences with recurrent state start at snapshots, and their slots always match their tokens. A toy replaces the
// model: it folds tokens into its slot, writes them into its pages, and checks both before each step.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "engine/scheduler.h"
#include "fresh_seed.h"

namespace millrace {
namespace {

constexpr int kBlock = 4, kVocab = 8, kEnd = 3;
constexpr int64_t kMostSequences = 4;

using Tokens = std::vector<int32_t>;

uint64_t fold(uint64_t state, int32_t token, const PrefixKey& key) {
  return (state ^ static_cast<uint64_t>(token + 1)) * 1099511628211u + key.adapter.size() + 1;
}

// Guesses some next tokens of the toy's texts, right or wrong, as a function of the tokens before.
class Guesses final : public SequenceDrafter {
 public:
  int32_t draft(std::span<const int32_t> tokens, std::span<int32_t> draft) override {
    uint64_t state = 0;
    for (const int32_t token : tokens) state = fold(state, token, {});
    const size_t count = std::min<size_t>(draft.size(), state % 4);
    for (size_t i = 0; i < count; ++i) {
      draft[i] = chosen_after(state) % kVocab;
      if ((state >> 20) % 3 == 0) draft[i] = (draft[i] + 1) % kVocab;
      state = fold(state, draft[i], {});
    }
    return static_cast<int32_t>(count);
  }
  static int32_t chosen_after(uint64_t state) { return static_cast<int32_t>((state >> 33) % kVocab); }
};

struct ToyOptions {
  bool paged = true, prefix_cache = true;
  int64_t rows = 16;
  int32_t last_chunk = 64;
  Drafter* drafter = nullptr;
};

class Toy {
 public:
  Toy(int32_t tokens, int32_t slots, const ToyOptions& o = {})
      : cache(layout(o.paged), {DType::F32, kBlock, tokens, slots}),
        pacer(
            [] {
              return StepEstimate{{{1, 1.0}, {64, 2.0}}};
            },
            {}),
        scheduler(cache,
                  {.rows = o.rows,
                   .sequences = kMostSequences,
                   .logit_rows = 16,
                   .prefix_cache = o.prefix_cache,
                   .drafter = o.drafter,
                   .draft_tokens = 3,
                   .last_chunk = o.last_chunk},
                  pacer),
        paged_(o.paged),
        drafts_(o.drafter != nullptr ? 3 : 0),
        batch_(o.rows, kMostSequences, 16) {}

  Sequence* add(Tokens prompt, int32_t most_tokens, int32_t choices = 1, std::string adapter = "") {
    auto group = std::make_shared<Group>();
    group->id = next_id_++;
    group->request.prompt = std::move(prompt);
    group->request.end_tokens = {kEnd};
    for (int32_t choice = 1; choice < choices; ++choice) group->unborn.push_back(choice);
    const auto longest = static_cast<int32_t>(group->request.prompt.size()) + most_tokens;
    auto sequence = std::make_unique<Sequence>(group, 0, cache.new_table(longest), longest, kVocab, drafts_);
    for (const int32_t choice : group->unborn)
      sequence->add_choice(
          std::make_unique<Sequence>(group, choice, cache.new_table(longest), longest, kVocab, drafts_));
    sequence->prefix_key.adapter = std::move(adapter);
    Sequence* added = sequence.get();
    scheduler.add(std::move(sequence));
    return added;
  }

  void cancel(RequestId id, int32_t choice) {
    for (auto& part : ahead_.parts) {
      if (part.sequence == nullptr || part.sequence->id() != id) continue;
      if (choice < 0 || part.sequence->choice() == choice) part.sequence = nullptr;
    }
    scheduler.cancel(id, choice);
  }

  // As Engine::step. With `ahead` the next step runs before the host knows the results of this one.
  bool step(bool ahead = false) {
    Scheduler::Plan plan;
    std::swap(plan, ahead_);
    Chosen chosen = chosen_ahead_;
    const auto is_null = [](const Scheduler::Part& part) { return part.sequence == nullptr; };
    if (std::all_of(plan.parts.begin(), plan.parts.end(), is_null)) {
      scheduler.admit(0);
      scheduler.compose(plan, batch_);
      if (plan.parts.empty()) return !scheduler.idle();
      scheduler.started(plan);
      chosen = run(plan, {});
    }
    scheduler.admit(0);
    if (ahead && scheduler.compose_ahead(plan, ahead_, batch_)) {
      scheduler.started(ahead_);
      chosen_ahead_ = run(ahead_, chosen);
    } else {
      ahead_ = {};
    }
    for (size_t i = 0; i < plan.parts.size(); ++i) collect(plan.parts[i], chosen[i]);
    for (auto& part : ahead_.parts) {
      if (part.sequence != nullptr && part.sequence->finished()) part.sequence = nullptr;
    }
    scheduler.retire();
    return !scheduler.idle();
  }

  void run_all() {
    for (int steps = 0; step(); ++steps) ASSERT_LT(steps, 10000);
  }

  // Every slot without a running sequence is free or holds a snapshot.
  void check_slots() {
    int32_t running = 0, checkpoints = 0;
    for (const auto& s : scheduler.running()) running += s->slot ? 1 : 0, checkpoints += s->checkpoint ? 1 : 0;
    ASSERT_EQ(static_cast<size_t>(running), scheduler.running().size());
    ASSERT_EQ(cache.slots().free() + scheduler.tree().snapshots() + running + checkpoints, cache.slots().size());
  }

  StateCache cache;
  StepPacer pacer;
  Scheduler scheduler;
  int64_t accepted = 0, rejected = 0;  // drafts

 private:
  static StateLayout layout(bool paged) {
    StateLayout layout;
    if (paged) layout.paged({1, 1, 2});
    layout.slot({DType::F32, 2});  // eight bytes per state
    return layout;
  }

  using Chosen = std::vector<Tokens>;  // by part: the token after each row

  // `before`: tokens chosen in the previous step, if this one was started ahead.
  Chosen run(const Scheduler::Plan& plan, const Chosen& before) {
    const Batch batch = batch_.batch();
    const KvLayer kv = paged_ ? cache.paged(0) : KvLayer();
    Chosen chosen;
    for (size_t i = 0; i < plan.parts.size(); ++i) {
      const Sequence& s = *plan.parts[i].sequence;
      const SequenceSlice& slice = batch.sequences[i];
      EXPECT_EQ(slice.slot, s.slot.id());
      Tokens tokens(s.tokens().begin(), s.tokens().begin() + slice.past);
      for (const int32_t token :
           batch.tokens.subspan(static_cast<size_t>(slice.first_row)).first(static_cast<size_t>(slice.rows)))
        tokens.push_back(token < 0 ? before[static_cast<size_t>(~token)].back() : token);
      uint64_t state = 0, held;
      chosen.emplace_back();
      const auto place = [&](std::byte* base, size_t offset) { return reinterpret_cast<float*>(base + offset); };
      for (int32_t p = 0; p < slice.past + slice.rows; ++p) {
        if (p == slice.past) {
          std::memcpy(&held, cache.slot(0).at(slice.slot), sizeof held);
          EXPECT_EQ(held, state) << "request " << s.id() << " after " << p << " tokens";
        }
        state = fold(state, tokens[static_cast<size_t>(p)], s.prefix_key);
        if (p >= slice.past) chosen.back().push_back(Guesses::chosen_after(state));
        if (!paged_) continue;
        const int32_t page = slice.pages[static_cast<size_t>(p / kBlock)];
        float* key = place(kv.keys, kv.key_offset(page, 0, p % kBlock));
        float* value = place(kv.values, kv.value_offset(page, 0, p % kBlock));
        const auto number = static_cast<float>(tokens[static_cast<size_t>(p)]);
        if (p < slice.past) {
          EXPECT_TRUE(key[0] == number && value[1] == number) << "request " << s.id() << " position " << p;
        } else {
          key[0] = value[0] = value[1] = number;
        }
      }
      std::memcpy(cache.slot(0).at(slice.slot), &state, sizeof state);
    }
    return chosen;
  }

  void collect(const Scheduler::Part& part, const Tokens& chosen) {
    if (part.sequence == nullptr) return;
    Sequence& s = *part.sequence;
    if (s.generating()) return collect_generated(s, chosen);
    const bool completes = part.completes();
    scheduler.advance(s, part.rows);
    if (!completes) return;
    const int32_t token = chosen.back();
    std::vector<int32_t> unborn;
    unborn.swap(s.group().unborn);
    s.take(token);
    for (const int32_t choice : unborn) {
      if (Sequence* child = scheduler.fork(s, choice)) child->take((token + choice) % kVocab);
    }
  }

  void collect_generated(Sequence& s, const Tokens& chosen) {
    const int32_t drafted = s.drafted();
    int32_t taken = 0;
    for (bool is_draft = true; is_draft && !s.finished(); ++taken) {
      const int32_t token = chosen[static_cast<size_t>(taken)];
      is_draft = token == s.next_draft();
      scheduler.advance(s, 1);
      s.take(token);
    }
    accepted += taken - 1;
    rejected += drafted - (taken - 1);
    if (taken <= drafted) scheduler.truncate(s);
  }

  bool paged_;
  int32_t drafts_;
  StepBatch batch_;
  Scheduler::Plan ahead_;
  Chosen chosen_ahead_;
  RequestId next_id_ = 1;
};

Tokens count_up(int32_t count, int32_t first = 0) {
  Tokens tokens(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = (first + i * i) % kVocab;
  return tokens;
}

TEST(Slots, APromptBeginsWhereASnapshotExists) {
  for (const int32_t length : {20, 18}) {  // at the end of a page, and inside one
    Toy toy(400, 8);
    const auto cached = [&](Tokens prompt, std::string adapter = "") {
      const uint64_t before = toy.scheduler.cached_tokens();
      toy.add(std::move(prompt), 1, 1, std::move(adapter));
      toy.run_all();
      return static_cast<int32_t>(toy.scheduler.cached_tokens() - before);
    };
    const Tokens prompt = count_up(length);
    Tokens extended = prompt;
    for (const int32_t token : {1, 2, 5, 6, 7}) extended.push_back(token);
    EXPECT_EQ(cached(prompt), 0);
    EXPECT_EQ(cached(prompt), 0) << "the last token must be computed, and no snapshot is before it";
    EXPECT_EQ(cached(extended, "adapter"), 0);
    EXPECT_EQ(cached(extended), length);
    Tokens longer = extended, differs = extended;
    longer.push_back(0);
    differs.back() = 0;
    EXPECT_EQ(cached(longer), length + 5) << "where the prompt before ended";
    EXPECT_EQ(cached(differs), length);
    EXPECT_EQ(cached(count_up(length, 1)), 0);
    toy.check_slots();
  }
}

TEST(Slots, AnEndedSequenceLeavesItsState) {
  Toy toy(400, 8);
  Sequence* first = toy.add(count_up(9), 20);
  Tokens all;
  while (toy.step(/*ahead=*/false)) all.assign(first->tokens().begin(), first->tokens().end());
  const auto computed = static_cast<int32_t>(all.size());  // the last token was drawn, not computed
  ASSERT_GT(computed, 9);
  all.push_back(0);
  toy.add(all, 1);
  toy.run_all();
  EXPECT_EQ(toy.scheduler.cached_tokens(), static_cast<uint64_t>(computed));
}

// The step that ran ahead has already taken in the end token, and the next turn begins with it.
TEST(Slots, AnUnforeseenEndBehindAStepAheadLeavesTheStateAfterIt) {
  int ended = 0;
  for (int32_t first = 0; first < 30; ++first) {
    Toy toy(400, 8);
    Sequence* sequence = toy.add(count_up(9, first), 30);
    Tokens all;
    bool goes_on = true;
    while (goes_on) {
      all.assign(sequence->tokens().begin(), sequence->tokens().end());
      goes_on = toy.step(/*ahead=*/true);
    }
    if (all.size() < 12 || all.size() > 35) continue;  // too short to run ahead, or ended by its length
    ++ended;
    all.push_back(kEnd);
    all.push_back(0);
    toy.add(all, 1);
    toy.run_all();  // checks the state
    EXPECT_EQ(toy.scheduler.cached_tokens(), all.size() - 1);
  }
  EXPECT_GT(ended, 3);
}

TEST(Slots, SequencesWaitForSlots) {
  Toy toy(400, 2);
  for (int32_t i = 0; i < 4; ++i) toy.add(count_up(10, i), 5);
  size_t most = 0;
  do {
    most = std::max(most, toy.scheduler.running().size());
    toy.check_slots();
  } while (toy.step());
  EXPECT_EQ(most, 2u);
  EXPECT_EQ(toy.cache.slots().free() + toy.scheduler.tree().snapshots(), 2);
}

TEST(Slots, ChoicesCopyTheStateOfTheirPrompt) {
  Toy toy(400, 8);
  toy.add(count_up(10), 12, 3);
  toy.run_all();  // checks the state of each
  EXPECT_EQ(toy.cache.slots().free() + toy.scheduler.tree().snapshots(), 8);
}

TEST(Slots, StateThatIsAheadOfTheTokensBeginsAgain) {
  Toy toy(400, 8);
  Sequence* s = toy.add(count_up(10), 30);
  toy.step();
  ASSERT_FALSE(s->finished());
  std::memset(toy.cache.slot(0).at(s->slot.id()), 0xff, 8);  // as if it had taken in a rejected draft
  s->slot_tokens += 2;
  toy.step();
  EXPECT_EQ(s->computed(), s->slot_tokens);
  toy.run_all();
}

// Conversations whose turns rewrite the end of the turn before, as templates do that drop the generation prompt or the
// reasoning of earlier answers.
TEST(Slots, TheNextTurnBeginsCloseToTheEndOfTheLast) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const int64_t rows : {5, 16, 64, 300}) {
    for (const int32_t rewritten : {0, 2, 6}) {
      Toy toy(4000, 24, {.rows = rows, .last_chunk = 16});
      Tokens text;
      const auto write = [&](size_t count) {
        for (size_t i = 0; i < count; ++i) text.push_back(static_cast<int32_t>(random() % kVocab));
      };
      size_t shared = 0;
      write(200);
      for (int turn = 0; turn < 6; ++turn) {
        Sequence* s = toy.add(text, 20);
        Tokens all;
        while (toy.step(random() % 2 == 0)) all.assign(s->tokens().begin(), s->tokens().end());
        const size_t kept = (rewritten == 0 ? all.size() : text.size()) - static_cast<size_t>(rewritten);
        text.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept));
        if (turn < 5) shared += text.size();
        write(30);
      }
      EXPECT_GE(static_cast<double>(toy.scheduler.cached_tokens()), 0.9 * static_cast<double>(shared))
          << rows << " rows, " << rewritten << " tokens rewritten";
      toy.check_slots();
    }
  }
}

TEST(Slots, LongPromptsLeaveStateInside) {
  for (const int64_t rows : {7, 16, 256}) {
    Toy toy(4000, 20, {.rows = rows, .last_chunk = 16});
    const Tokens prompt = count_up(600);
    toy.add(prompt, 1);
    toy.run_all();
    Tokens edited(prompt.begin(), prompt.begin() + 300);
    for (int i = 0; i < 40; ++i) edited.push_back(kVocab - 1);
    toy.add(edited, 1);
    toy.run_all();
    EXPECT_GE(toy.scheduler.cached_tokens(), 300u - 128) << rows;
  }
}

// The second of several prompts with a common beginning leaves its state where they part.
TEST(Slots, TheThirdPromptBeginsWhereTheFirstTwoPart) {
  Toy toy(2000, 8, {.rows = 64, .last_chunk = 16});
  const auto ask = [&](int32_t last) {
    const uint64_t before = toy.scheduler.cached_tokens();
    Tokens prompt = count_up(100);
    for (int i = 0; i < 40; ++i) prompt.push_back((last + i) % kVocab);
    toy.add(prompt, 1);
    toy.run_all();
    return toy.scheduler.cached_tokens() - before;
  };
  ask(1);
  ask(3);
  EXPECT_EQ(ask(6), 100u);
}

TEST(Slots, PromptsThatBeginAlikeAtTheSameTimeAreComputedOnce) {
  Toy toy(2000, 12, {.rows = 32, .last_chunk = 16});
  for (int32_t i = 0; i < 4; ++i) {
    Tokens prompt = count_up(160);
    for (int32_t j = 0; j < 30; ++j) prompt.push_back((i + j) % kVocab);
    toy.add(prompt, 3);
  }
  toy.run_all();
  EXPECT_EQ(toy.scheduler.cached_tokens(), 3 * 160u);
}

TEST(Slots, RejectedDraftsReturnToTheStateBeforeThem) {
  Guesses guesses;
  Toy toy(400, 8, {.drafter = &guesses});
  for (int32_t i = 0; i < 12; ++i) toy.add(count_up(10, i), 60);
  for (int steps = 0; toy.step(); ++steps) {  // checks the state
    ASSERT_LT(steps, 10000);
    toy.check_slots();
  }
  EXPECT_GT(toy.accepted, 10);
  EXPECT_GT(toy.rejected, 10);
  EXPECT_EQ(toy.scheduler.preemptions(), 0u);
  EXPECT_EQ(toy.cache.slots().free() + toy.scheduler.tree().snapshots(), toy.cache.slots().size());
}

TEST(Slots, AFailedStepLeavesNoState) {
  Toy toy(400, 8);
  Sequence* s = toy.add(count_up(10), 30);
  toy.step();
  Scheduler::Plan plan;
  StepBatch batch(16, kMostSequences, 16);
  toy.scheduler.compose(plan, batch);
  toy.scheduler.started(plan);
  const Tokens all(s->tokens().begin(), s->tokens().end());
  toy.scheduler.failed(plan);
  const int32_t before = toy.scheduler.tree().snapshots();
  toy.cancel(s->id(), -1);
  EXPECT_EQ(toy.scheduler.tree().snapshots(), before);
  toy.check_slots();
}

// Random additions and cancellations with few pages and slots: states stay separate, and all pages and slots are freed.
TEST(Slots, AnyOrderOfEventsKeepsTheState) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  uint64_t cached = 0, preemptions = 0;
  int64_t rejected = 0;
  for (int round = 0; round < 30; ++round) {
    Guesses guesses;
    const std::array<int64_t, 4> rows{5, 9, 16, 64};
    Toy toy(48 + 16 * static_cast<int32_t>(random() % 4), 2 + static_cast<int32_t>(random() % 8),
            {.paged = round % 4 != 3,
             .prefix_cache = round % 5 != 4,
             .rows = rows[random() % 4],
             .last_chunk = random() % 2 == 0 ? 8 : 64,
             .drafter = round % 3 == 1 ? &guesses : nullptr});
    Tokens known = count_up(40, round);
    RequestId added = 0;
    for (int event = 0; event < 400 && !testing::Test::HasFailure(); ++event) {
      const auto dice = random() % 12;
      if (dice < 3 && toy.scheduler.waiting().size() < 6) {
        Tokens prompt(known.begin(), known.begin() + 1 + static_cast<std::ptrdiff_t>(random() % 30));
        for (auto extra = random() % 4; extra > 0; --extra) prompt.push_back(static_cast<int32_t>(random() % kVocab));
        const auto choices = 1 + static_cast<int32_t>(random() % 3);
        toy.add(std::move(prompt), 1 + static_cast<int32_t>(random() % 12), choices, random() % 5 == 0 ? "lora" : "");
        ++added;
      } else if (dice == 3 && added > 0) {
        toy.cancel(1 + random() % added, static_cast<int32_t>(random() % 4) - 1);
      } else if (dice == 4 && !toy.scheduler.running().empty()) {  // a generated text becomes the prompt of others
        const auto tokens = toy.scheduler.running()[random() % toy.scheduler.running().size()]->tokens();
        if (tokens.size() >= 10) std::copy(tokens.begin(), tokens.begin() + 10, known.begin());
      } else {
        toy.step(random() % 2 == 0);
      }
      toy.check_slots();
    }
    toy.run_all();
    toy.check_slots();
    EXPECT_EQ(toy.scheduler.tree().evictable(), toy.scheduler.tree().pages());
    cached += toy.scheduler.cached_tokens();
    preemptions += toy.scheduler.preemptions();
    rejected += toy.rejected;
    toy.scheduler.tree().evict(1000);
    EXPECT_EQ(toy.cache.blocks().free(), toy.cache.blocks().size());
    EXPECT_EQ(toy.cache.slots().free(), toy.cache.slots().size());
    EXPECT_EQ(toy.scheduler.tree().roots(), 0u);
  }
  EXPECT_GT(cached, 0u);
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(rejected, 0);
}

}  // namespace
}  // namespace millrace
