#include "sampling/grammar/grammar_compiler.h"

#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "sampling/grammar/ebnf_check.h"

namespace millrace {
namespace {

// XGrammar's messages begin with the time and its own source file.
std::string message_of(const std::exception& error) {
  std::string_view text = error.what();
  if (text.starts_with("[")) {
    const size_t begin = text.find(": ");
    if (begin != std::string_view::npos) text.remove_prefix(begin + 2);
  }
  const size_t end = text.find_last_not_of(" \n");
  return std::string(text.substr(0, end + 1));
}

class GrammarConstraint : public Constraint {
 public:
  GrammarConstraint(const xgrammar::CompiledGrammar& grammar, const std::vector<int32_t>& end_tokens)
      : matcher_(grammar, end_tokens, end_tokens.empty()), vocab_(grammar.GetTokenizerInfo().GetVocabSize()) {}

  bool fill_mask(std::span<uint32_t> words) override {
    const size_t used = mask_words(vocab_);
    MR_ASSERT(words.size() >= used);
    int64_t shape = static_cast<int64_t>(used);
    DLTensor mask{};
    mask.data = words.data();
    mask.device = {kDLCPU, 0};
    mask.ndim = 1;
    mask.dtype = {kDLInt, 32, 1};
    mask.shape = &shape;
    if (failed_) return false;
    // Nothing may throw here: what XGrammar cannot go on with ends the answer.
    try {
      if (!matcher_.FillNextTokenBitmask(&mask)) return false;
    } catch (const std::exception&) {
      failed_ = true;
      return false;
    }
    std::fill(words.begin() + static_cast<ptrdiff_t>(used), words.end(), 0u);
    stuck_ = std::all_of(words.begin(), words.begin() + static_cast<ptrdiff_t>(used),
                         [](uint32_t word) { return word == 0; });
    return true;
  }

  void accept(int32_t token) override {
    try {
      failed_ = failed_ || !matcher_.AcceptToken(token);
    } catch (const std::exception&) {
      failed_ = true;
    }
  }

  bool terminated() const override { return failed_ || stuck_ || matcher_.IsTerminated(); }

 private:
  xgrammar::GrammarMatcher matcher_;
  int32_t vocab_;
  bool failed_ = false;  // XGrammar gave up
  bool stuck_ = false;   // no token of this vocabulary can follow
};

}  // namespace

struct GrammarCompiler::State {
  struct Entry {
    GrammarSpec spec;
    xgrammar::CompiledGrammar grammar;
    size_t bytes;
  };

  State(GrammarVocabulary given, size_t limit)
      : end_tokens(std::move(given.end_tokens)),
        info(given.tokens, xgrammar::VocabType::RAW, static_cast<int>(given.tokens.size()), end_tokens),
        compiler(info, 1, false),
        limit(limit) {}

  std::vector<int32_t> end_tokens;
  xgrammar::TokenizerInfo info;
  xgrammar::GrammarCompiler compiler;
  size_t limit;

  mutable std::mutex lock;   // of what follows
  std::list<Entry> entries;  // the most recently used first
  Stats stats;
  std::mutex compiling;
};

GrammarCompiler::GrammarCompiler(GrammarVocabulary vocabulary, size_t cached_bytes)
    : state_(std::make_unique<State>(std::move(vocabulary), cached_bytes)) {}
GrammarCompiler::~GrammarCompiler() = default;

std::unique_ptr<Constraint> GrammarCompiler::compile(const GrammarSpec& spec) {
  const auto find = [&]() -> std::unique_ptr<Constraint> {
    const std::lock_guard guard(state_->lock);
    const auto found = std::find_if(state_->entries.begin(), state_->entries.end(),
                                    [&](const auto& entry) { return entry.spec == spec; });
    if (found == state_->entries.end()) return nullptr;
    ++state_->stats.hits;
    state_->entries.splice(state_->entries.begin(), state_->entries, found);
    return std::make_unique<GrammarConstraint>(found->grammar, state_->end_tokens);
  };
  if (auto known = find()) return known;
  const std::string ebnf = grammar_to_ebnf(spec);
  if (spec.kind == GrammarSpec::Kind::Ebnf) check_ebnf(ebnf);
  const std::lock_guard compiling(state_->compiling);
  if (auto meanwhile = find()) return meanwhile;
  try {
    xgrammar::CompiledGrammar grammar = state_->compiler.CompileGrammar(ebnf);
    auto constraint = std::make_unique<GrammarConstraint>(grammar, state_->end_tokens);
    const size_t bytes = grammar.MemorySizeBytes() + spec.text.size();
    const std::lock_guard guard(state_->lock);
    ++state_->stats.misses;
    state_->stats.bytes += bytes;
    state_->entries.push_front({spec, std::move(grammar), bytes});
    while (state_->stats.bytes > state_->limit && state_->entries.size() > 1) {
      state_->stats.bytes -= state_->entries.back().bytes;
      state_->entries.pop_back();
    }
    state_->stats.kept = state_->entries.size();
    return constraint;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ErrorKind::Usage, "the grammar cannot be compiled: {}", message_of(error));
  }
}

GrammarCompiler::Stats GrammarCompiler::stats() const {
  const std::lock_guard guard(state_->lock);
  return state_->stats;
}

}  // namespace millrace
