// Added tokens: matched as whole strings in the text before the model runs. Some are special (<|im_end|>).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "text/tokenizer/byte_trie.h"

namespace millrace {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;
  bool single_word = false;  // never inside of a word
  bool lstrip = false;       // includes white space in front of it
  bool rstrip = false;       // includes white space behind it
  bool normalized = false;   // matched in the normalized text
};

// Finds added tokens: leftmost first, then longest.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  // `texts[i]` is the string to find for tokens[i]. The tokens must outlive the finder. Throws BadFile for overlong
  // tokens, which would make the time per character unbounded.
  AddedTokenFinder(const std::vector<const AddedToken*>& tokens, const std::vector<std::string>& texts);

  bool empty() const { return tokens_.empty(); }

  // Visits, from left to right, the tokens and the stretches between them (token is null). `is_special` decides whether
  // a special token at [begin, end) is one, or plain text.
  void split(std::string_view text, FunctionRef<bool(size_t begin, size_t end)> is_special,
             FunctionRef<void(std::string_view stretch, const AddedToken* token)> visit) const;

 private:
  bool applies(const AddedToken& token, std::string_view text, size_t begin, size_t end) const;

  std::vector<const AddedToken*> tokens_;
  ByteTrie trie_;
};

}  // namespace millrace
