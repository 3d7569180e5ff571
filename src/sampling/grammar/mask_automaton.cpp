#include "sampling/grammar/mask_automaton.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace millrace {
namespace {

constexpr size_t kMostMasksBytes = 8 << 20;
constexpr size_t kMostStatesBytes = 32 << 20;
constexpr int64_t kMaskWork = 400000;       // places that steps pass through: some milliseconds
constexpr int64_t kRehearsalWork = 160000;  // what a grammar may need for a mask, to be served at all
constexpr size_t kWorthwhileGain = 256;
constexpr int kRehearsedTokens = 24;

}  // namespace

// The state of one sequence. It keeps its text: where the automaton has forgotten its states, the text leads there
// again.
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
    // A text that fills the memory by itself must not be read again at every token.
    automaton_->most_bytes_ = std::max(automaton_->most_bytes_, 2 * automaton_->pushdown_.bytes());
  }

  std::shared_ptr<MaskAutomaton> automaton_;
  State state_ = Pushdown::kDead;
  uint64_t round_ = 0;  // of the automaton when state_ was found; 0: not yet
  std::string text_;
  bool failed_ = false;  // the grammar was too complex to go on with
  bool stuck_ = false;   // no token of this vocabulary can follow
};

MaskAutomaton::MaskAutomaton(GrammarProgram program, std::shared_ptr<TokenVocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)), pushdown_(std::move(program)), most_bytes_(kMostStatesBytes) {
  if (pushdown_.start() == Pushdown::kDead) fail(ErrorKind::Usage, "the grammar allows no text at all");
  for (auto& set : vocabulary_->sets(pushdown_.program().sets)) {
    std::vector<uint8_t> bytes = set->representatives(pushdown_.program());
    sets_.push_back({std::move(set), std::move(bytes)});
  }
}

std::unique_ptr<TextConstraint> MaskAutomaton::follow() { return std::make_unique<Follower>(shared_from_this()); }

void MaskAutomaton::forget_if_large() {
  if (pushdown_.bytes() <= most_bytes_) return;
  masks_.clear();
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
  std::vector<uint32_t> mask = compute_mask(state);
  if ((masks_.size() + 1) * mask.size() * sizeof(uint32_t) > kMostMasksBytes) masks_.clear();
  return masks_[state] = std::move(mask);
}

std::vector<uint32_t> MaskAutomaton::compute_mask(State state) {
  std::vector<uint32_t> mask(mask_words(vocabulary_->size()));
  const auto bit = [&](int32_t token) { return 1u << (token % 32); };
  const auto word = [&](int32_t token) -> uint32_t& { return mask[static_cast<size_t>(token) / 32]; };
  const UsedSet* best = nullptr;
  TokenSet::Reach reach;
  for (const UsedSet& used : sets_) {
    const TokenSet::Reach one = used.set->reach(pushdown_, state, used.representatives);
    if (one.gain < std::max(kWorthwhileGain, reach.gain + 1)) continue;
    best = &used;
    reach = one;
  }
  if (best) {
    best->set->add_allowed(pushdown_, state, reach, mask);
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
  uint64_t random = 0x9E3779B97F4A7C15u;
  State state = pushdown_.start();
  for (int i = 0; i < kRehearsedTokens && state != Pushdown::kDead; ++i) {
    pushdown_.allow(kRehearsalWork);
    const std::vector<uint32_t> mask = compute_mask(state);
    std::vector<int32_t> words;
    for (size_t w = 0; w < mask.size(); ++w) {
      if (mask[w] != 0) words.push_back(static_cast<int32_t>(w));
    }
    if (words.empty()) return;
    random = random * 6364136223846793005u + 1442695040888963407u;
    const int32_t word = words[(random >> 33) % words.size()];
    int32_t bit = 0;
    while ((mask[static_cast<size_t>(word)] >> bit & 1) == 0) ++bit;
    masks_[pushdown_.alike(state, vocabulary_->longest())] = mask;
    const int32_t token = word * 32 + bit;
    const auto& ends = vocabulary_->end_tokens();
    const bool end = std::find(ends.begin(), ends.end(), token) != ends.end();
    state = end ? pushdown_.start() : advance(state, vocabulary_->bytes(token));
  }
}

size_t MaskAutomaton::memory() const {
  const std::lock_guard guard(lock_);
  return pushdown_.bytes() + masks_.size() * mask_words(vocabulary_->size()) * sizeof(uint32_t) +
         pushdown_.program().nodes.size() * sizeof(ProgramNode);
}

}  // namespace millrace
