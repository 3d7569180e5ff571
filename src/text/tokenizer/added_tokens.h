// Tokens that stand for themselves wherever they are written in a text: special ones (<|im_end|>) and others.
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
  bool single_word = false;  // not inside of a word
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and that behind it
  bool normalized = false;   // looked for in the normalized text
};

// Finds some of the added tokens: the leftmost first, of those the longest.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  // `texts[i]` is how tokens[i] looks in the text. The tokens must outlive the finder. Throws BadFile for one so long
  // that the time per character would not be bounded.
  AddedTokenFinder(const std::vector<const AddedToken*>& tokens, const std::vector<std::string>& texts);

  bool empty() const { return tokens_.empty(); }

  // Visits the text from left to right: stretches without tokens (token is null), and tokens.
  void split(std::string_view text, bool parse_special,
             FunctionRef<void(std::string_view stretch, const AddedToken* token)> visit) const;

 private:
  bool applies(const AddedToken& token, std::string_view text, size_t begin, size_t end, bool parse_special) const;

  std::vector<const AddedToken*> tokens_;
  ByteTrie trie_;
};

}  // namespace millrace
