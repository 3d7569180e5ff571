// Decodes the tokens of one choice: emits whole characters, drops special tokens except those that a parser needs, and
// ends before a stop string. Stop strings are ignored within the first min_tokens tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sampling/stop_strings.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace millrace {

class ChoiceText {
 public:
  ChoiceText(const Tokenizer& tokenizer, const std::vector<std::string>& stop, int min_tokens,
             const std::vector<std::string>& visible)
      : tokenizer_(tokenizer),
        visible_(visible),
        detokenizer_(tokenizer, /*skip_special=*/true),
        stop_(stop),
        before_stop_(min_tokens) {}

  std::string push(int32_t token) {
    std::string text = is_visible(token) ? detokenizer_.finish() + std::string(tokenizer_.token_text(token))
                                         : detokenizer_.push(token);
    if (before_stop_ == 0) return stop_.push(text);
    --before_stop_;
    return text;
  }
  std::string finish() {
    std::string rest = stop_.push(detokenizer_.finish());
    return rest += stop_.finish();
  }
  bool stopped() const { return stop_.stopped(); }
  const std::string& stop_found() const { return stop_.found(); }

 private:
  bool is_visible(int32_t token) const {
    if (visible_.empty() || !tokenizer_.is_special(token)) return false;
    for (const auto& text : visible_) {
      if (tokenizer_.token_text(token) == text) return true;
    }
    return false;
  }

  const Tokenizer& tokenizer_;
  std::vector<std::string> visible_;
  StreamingDetokenizer detokenizer_;
  StopStrings stop_;
  int before_stop_;  // tokens until stop strings count
};

}  // namespace millrace
