#include "grammar/automaton/mask_automaton.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace millrace {
namespace {

constexpr size_t kMostMasksBytes = 8 << 20;
constexpr size_t kMostStatesBytes = 32 << 20;
constexpr int64_t kMaskWork = 400000;       // visited nodes: some milliseconds
constexpr int64_t kRehearsalWork = 160000;  // a grammar that needs more for one mask is refused
constexpr size_t kWorthwhileGain = 256;
constexpr size_t kMostRehearsed = 2000;  // states
constexpr std::chrono::milliseconds kLongestRehearsal(30);
constexpr std::chrono::microseconds kSlowMask(10);  // faster masks are not stored

using Clock = std::chrono::steady_clock;

}  // namespace

// The state of one sequence. It keeps its text, to find its state again when the automaton has dropped its states.
class MaskAutomaton::Follower : public TextConstraint {
 public:
  explicit Follower(std::shared_ptr<MaskAutomaton> automaton) : automaton_(std::move(automaton)) {}

  bool fill_mask(std::span<uint32_t> words) override {
    if (failed_) return false;
    try {
      const std::lock_guard guard(automaton_->lock_);
      catch_up();
      const std::vector<uint32_t>& mask = automaton_->mask_of(state_);
      MR_ASSERT(words.size() >= mask.size());
      std::copy(mask.begin(), mask.end(), words.begin());
      std::fill(words.begin() + static_cast<ptrdiff_t>(mask.size()), words.end(), 0u);
      stuck_ = std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; });
      return true;
    } catch (const Pushdown::TooComplex&) {
      failed_ = true;
    } catch (const std::bad_alloc&) {
      failed_ = true;
    }
    return false;
  }

  void accept(int32_t token) override { accept_text(automaton_->vocabulary_->bytes(token)); }

  void accept_text(std::string_view text) override {
    if (failed_) return;
    try {
      const std::lock_guard guard(automaton_->lock_);
      catch_up();
      state_ = automaton_->advance(state_, text);
      text_ += text;
      failed_ = state_ == Pushdown::kDead;
    } catch (const Pushdown::TooComplex&) {
      failed_ = true;
    } catch (const std::bad_alloc&) {
      failed_ = true;
    }
  }

  bool allows(std::string_view text) override {
    if (failed_) return false;
    try {
      const std::lock_guard guard(automaton_->lock_);
      catch_up();
      return automaton_->advance(state_, text) != Pushdown::kDead;
    } catch (const Pushdown::TooComplex&) {
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  void mark() override { mark_ = {state_, round_, text_.size(), failed_, stuck_}; }

  // A state of an earlier round means nothing any more; catch_up() sees that by the round.
  void roll_back() override {
    state_ = mark_.state;
    round_ = mark_.round;
    text_.resize(mark_.text);
    failed_ = mark_.failed;
    stuck_ = mark_.stuck;
  }

  bool failed() const override { return failed_ || stuck_; }

  bool terminated() const override {
    if (failed()) return true;
    if (!automaton_->vocabulary_->end_tokens().empty()) return false;
    const std::lock_guard guard(automaton_->lock_);
    return round_ == automaton_->round_ && automaton_->pushdown_.accepting(state_);
  }

 private:
  void catch_up() {
    automaton_->forget_if_large();
    if (round_ == automaton_->round_) return;
    state_ = automaton_->advance(automaton_->pushdown_.start(), text_);
    round_ = automaton_->round_;
    // A text whose states alone exceed the memory limit must not be replayed at every token.
    automaton_->most_bytes_ = std::max(automaton_->most_bytes_, 2 * automaton_->pushdown_.bytes());
  }

  std::shared_ptr<MaskAutomaton> automaton_;
  State state_ = Pushdown::kDead;
  uint64_t round_ = 0;  // the automaton's round when state_ was found; 0: never
  std::string text_;
  bool failed_ = false;  // the grammar became too complex
  bool stuck_ = false;   // no token of the vocabulary can follow
  struct Mark {
    State state = Pushdown::kDead;
    uint64_t round = 0;
    size_t text = 0;  // bytes
    bool failed = false, stuck = false;
  };
  Mark mark_;
};

MaskAutomaton::MaskAutomaton(GrammarProgram program, std::shared_ptr<TokenVocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)), pushdown_(std::move(program)), most_bytes_(kMostStatesBytes) {
  if (pushdown_.start() == Pushdown::kDead) fail(ErrorKind::Usage, "the grammar allows no text at all");
  for (auto& set : vocabulary_->sets(pushdown_.program().sets)) sets_.emplace_back(std::move(set), pushdown_.program());
}

std::unique_ptr<TextConstraint> MaskAutomaton::follow() { return std::make_unique<Follower>(shared_from_this()); }

void MaskAutomaton::forget_if_large() {
  if (pushdown_.bytes() <= most_bytes_) return;
  masks_.clear();
  for (SetReach& set : sets_) set.forget();
  pushdown_.reset();
  ++round_;
  most_bytes_ = kMostStatesBytes;
}

MaskAutomaton::State MaskAutomaton::advance(State state, std::string_view bytes) {
  for (const char byte : bytes) {
    if (state == Pushdown::kDead) break;
    pushdown_.allow(kMaskWork);
    state = pushdown_.next(state, static_cast<uint8_t>(byte));
  }
  return state;
}

const std::vector<uint32_t>& MaskAutomaton::mask_of(State given) {
  pushdown_.allow(kMaskWork);
  const State state = pushdown_.alike(given, vocabulary_->longest());
  if (const auto known = masks_.find(state); known != masks_.end()) return known->second;
  return keep_mask(state, compute_mask(state));
}

const std::vector<uint32_t>& MaskAutomaton::keep_mask(State state, std::vector<uint32_t> mask) {
  if ((masks_.size() + 1) * mask.size() * sizeof(uint32_t) > kMostMasksBytes) masks_.clear();
  return masks_[state] = std::move(mask);
}

std::vector<uint32_t> MaskAutomaton::compute_mask(State state) {
  std::vector<uint32_t> mask(mask_words(vocabulary_->size()));
  const auto bit = [&](int32_t token) { return 1u << (token % 32); };
  const auto word = [&](int32_t token) -> uint32_t& { return mask[static_cast<size_t>(token) / 32]; };
  const SetReach* best = nullptr;
  SetReach::Reach reach;
  for (SetReach& set : sets_) {
    SetReach::Reach one = set.reach(pushdown_, state);
    if (one.gain_plain + one.gain_behind < kWorthwhileGain || one.gain() <= reach.gain()) continue;
    best = &set;
    reach = std::move(one);
    if (reach.plain.covers()) break;  // sets are sorted by size, largest first
  }
  if (best) {
    best->add_allowed(pushdown_, state, reach, vocabulary_->trie(), mask);
  } else {
    vocabulary_->trie().add_allowed(pushdown_, state, mask);
  }
  for (const auto& [twin, token] : vocabulary_->twins()) {
    if (word(token) & bit(token)) word(twin) |= bit(twin);
  }
  if (pushdown_.accepting(state)) {
    for (const int32_t token : vocabulary_->end_tokens()) word(token) |= bit(token);
  }
  return mask;
}

void MaskAutomaton::rehearse() {
  const std::lock_guard guard(lock_);
  const Clock::time_point begin = Clock::now();
  const auto tired = [&](auto most) { return Clock::now() - begin > most; };
  // Breadth-first over the states. States inside of a character are skipped: tokens seldom end there.
  std::vector<State> states{pushdown_.start()};
  std::unordered_set<State> seen{pushdown_.start()};
  for (size_t i = 0; i < states.size() && !tired(kLongestRehearsal); ++i) {
    pushdown_.allow(kRehearsalWork);
    const Clock::time_point before = Clock::now();
    std::vector<uint32_t> mask = compute_mask(states[i]);
    if (Clock::now() - before > kSlowMask)
      keep_mask(pushdown_.alike(states[i], vocabulary_->longest()), std::move(mask));
    for (int byte = 0; byte < 0x80 && states.size() < kMostRehearsed; ++byte) {
      const State next = pushdown_.next(states[i], static_cast<uint8_t>(byte));
      if (next != Pushdown::kDead && seen.insert(next).second) states.push_back(next);
    }
  }
}

size_t MaskAutomaton::memory() const {
  const std::lock_guard guard(lock_);
  size_t steps = 0;
  for (const SetReach& set : sets_) steps += set.memory();
  return steps + pushdown_.bytes() + masks_.size() * mask_words(vocabulary_->size()) * sizeof(uint32_t) +
         pushdown_.program().nodes.size() * sizeof(ProgramNode);
}

}  // namespace millrace
