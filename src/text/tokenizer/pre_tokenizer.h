// Splits normalized text into pieces that the model encodes independently.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "text/tokenizer/pattern.h"

namespace millrace {

struct PreToken {
  std::string_view text;
  bool at_start;  // begins at the beginning of the user's text
};

struct PreTokens {
  std::vector<PreToken> list;
  std::deque<std::string> owned;  // buffers of rewritten pieces
  size_t most_bytes;              // limit for a rewritten text: many steps could grow it without bound
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void split(PreTokens& pieces) const = 0;
};

// The treatment of matches of a pattern.
enum class SplitBehavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

std::unique_ptr<PreTokenizer> make_split(Pattern pattern, SplitBehavior behavior, bool invert);
std::unique_ptr<PreTokenizer> make_character_split(bool (*matches)(char32_t), SplitBehavior behavior);
std::unique_ptr<PreTokenizer> make_delimiter_split(char32_t delimiter);
std::unique_ptr<PreTokenizer> make_whitespace_split();  // words and runs of punctuation
std::unique_ptr<PreTokenizer> make_byte_level(bool add_prefix_space, bool use_regex);
std::unique_ptr<PreTokenizer> make_script_split();
std::unique_ptr<PreTokenizer> make_fixed_length_split(size_t characters);
std::unique_ptr<PreTokenizer> make_sequence(std::vector<std::unique_ptr<PreTokenizer>> steps);

enum class PrependScheme { First, Never, Always };
std::unique_ptr<PreTokenizer> make_metaspace(std::string replacement, PrependScheme prepend, bool split);

}  // namespace millrace
