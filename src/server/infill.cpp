#include "server/infill.h"

#include <optional>
#include <string_view>

#include "server/requests/api_error.h"

namespace millrace {
namespace {

struct InfillTokens {
  std::string_view prefix, suffix, middle;  // middle empty: the prompt is suffix first
  std::string_view repository, file;        // for related files; may be empty
};

// Qwen Coder and CodeGemma, StarCoder and Granite, DeepSeek Coder, Code Llama, GLM-4, Codestral.
constexpr InfillTokens kKnown[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<reponame>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "", ""},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "", ""},
    {"▁<PRE>", "▁<SUF>", "▁<MID>", "", ""},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", "", ""},
    {"[PREFIX]", "[SUFFIX]", "", "", ""},
};

const InfillTokens* known_tokens(const Tokenizer& tokenizer) {
  const auto has = [&](std::string_view token) { return token.empty() || tokenizer.id_of(token).has_value(); };
  for (const InfillTokens& one : kKnown) {
    if (has(one.prefix) && has(one.suffix) && has(one.middle)) return &one;
  }
  return nullptr;
}

class InfillPrompt {
 public:
  explicit InfillPrompt(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    if (tokenizer.bos()) {  // only where the model's own prompts begin with it
      const std::vector<int32_t> empty = tokenizer.encode("");
      if (!empty.empty() && empty.front() == *tokenizer.bos()) tokens_.push_back(*tokenizer.bos());
    }
  }
  void mark(std::string_view token) { tokens_.push_back(*tokenizer_.id_of(token)); }
  void text(std::string_view text) {
    const std::vector<int32_t> more = tokenizer_.encode(text, {.add_special = false, .parse_special = false});
    tokens_.insert(tokens_.end(), more.begin(), more.end());
  }
  std::vector<int32_t> take() { return std::move(tokens_); }

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;
};

}  // namespace

bool can_infill(const Tokenizer& tokenizer) { return known_tokens(tokenizer) != nullptr; }

std::vector<int32_t> infill_prompt(const Tokenizer& tokenizer, const InfillText& text, const char* field) {
  const InfillTokens* tokens = known_tokens(tokenizer);
  if (tokens == nullptr) {
    fail_field(field, "unsupported_value", "this model has no tokens for filling in the middle");
  }
  InfillPrompt prompt(tokenizer);
  const bool separates = !tokens->file.empty() && tokenizer.id_of(tokens->file) && tokenizer.id_of(tokens->repository);
  if (separates && !text.files.empty()) {
    prompt.mark(tokens->repository);
    prompt.text("project\n");
  }
  for (const auto& [name, content] : text.files) {
    if (separates) prompt.mark(tokens->file);
    prompt.text(separates ? name + "\n" + content : content + "\n\n");
  }
  if (separates && !text.files.empty()) {
    prompt.mark(tokens->file);
    prompt.text("this\n");
  }
  if (tokens->middle.empty()) {
    prompt.mark(tokens->suffix);
    prompt.text(text.suffix);
    prompt.mark(tokens->prefix);
    prompt.text(text.prefix);
    return prompt.take();
  }
  prompt.mark(tokens->prefix);
  prompt.text(text.prefix);
  prompt.mark(tokens->suffix);
  prompt.text(text.suffix);
  prompt.mark(tokens->middle);
  return prompt.take();
}

}  // namespace millrace
