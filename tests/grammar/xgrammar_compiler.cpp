#include "xgrammar_compiler.h"

#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

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

class XGrammarConstraint : public TextConstraint {
 public:
  XGrammarConstraint(const xgrammar::CompiledGrammar& grammar, const std::vector<int32_t>& end_tokens)
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
      accepted_ += failed_ ? 0 : 1;
    } catch (const std::exception&) {
      failed_ = true;
    }
  }

  bool allows(std::string_view text) override {
    if (failed_ || !matcher_.AcceptString(std::string(text))) return false;
    matcher_.Rollback(1);  // a text counts as one token
    return true;
  }
  void accept_text(std::string_view text) override {
    failed_ = failed_ || !matcher_.AcceptString(std::string(text));
    accepted_ += failed_ ? 0 : 1;
  }

  void mark() override { mark_ = {accepted_, failed_, stuck_}; }
  void roll_back() override {
    matcher_.Rollback(accepted_ - mark_.accepted);
    accepted_ = mark_.accepted;
    failed_ = mark_.failed;
    stuck_ = mark_.stuck;
  }

  bool failed() const override { return failed_ || stuck_; }
  bool terminated() const override { return failed() || matcher_.IsTerminated(); }

 private:
  xgrammar::GrammarMatcher matcher_;
  int32_t vocab_;
  bool failed_ = false;  // XGrammar gave up
  bool stuck_ = false;   // no token of this vocabulary can follow
  int accepted_ = 0;     // tokens, a text counts as one
  struct Mark {
    int accepted = 0;
    bool failed = false, stuck = false;
  };
  Mark mark_;
};

class XGrammarCompiled : public CompiledGrammar {
 public:
  XGrammarCompiled(xgrammar::CompiledGrammar grammar, std::vector<int32_t> end_tokens)
      : grammar_(std::move(grammar)), end_tokens_(std::move(end_tokens)) {}
  std::unique_ptr<TextConstraint> follow() override {
    return std::make_unique<XGrammarConstraint>(grammar_, end_tokens_);
  }
  size_t memory() const override { return grammar_.MemorySizeBytes(); }

 private:
  xgrammar::CompiledGrammar grammar_;
  std::vector<int32_t> end_tokens_;
};

std::vector<std::string> all_bytes(const TokenVocabulary& vocabulary) {
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < vocabulary.size(); ++id) tokens.push_back(vocabulary.bytes(id));
  return tokens;
}

}  // namespace

struct XGrammarCompiler::State {
  explicit State(const TokenVocabulary& vocabulary)
      : end_tokens(vocabulary.end_tokens()),
        info(all_bytes(vocabulary), xgrammar::VocabType::RAW, static_cast<int>(vocabulary.size()), end_tokens),
        compiler(info, 1, false) {}
  std::vector<int32_t> end_tokens;
  xgrammar::TokenizerInfo info;
  xgrammar::GrammarCompiler compiler;
};

XGrammarCompiler::XGrammarCompiler(const TokenVocabulary& vocabulary) : state_(std::make_unique<State>(vocabulary)) {}
XGrammarCompiler::~XGrammarCompiler() = default;

void XGrammarCompiler::parse(const std::string& ebnf) {
  try {
    xgrammar::Grammar::FromEBNF(ebnf);
  } catch (const std::exception& error) {
    fail(ErrorKind::Usage, "the grammar cannot be compiled: {}", message_of(error));
  }
}

std::shared_ptr<CompiledGrammar> XGrammarCompiler::compile(const std::string& ebnf) {
  try {
    return std::make_shared<XGrammarCompiled>(state_->compiler.CompileGrammar(ebnf), state_->end_tokens);
  } catch (const std::exception& error) {
    fail(ErrorKind::Usage, "the grammar cannot be compiled: {}", message_of(error));
  }
}

}  // namespace millrace
