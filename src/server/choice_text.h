// The text of one choice as its tokens come: whole characters, special tokens left out but for those a parser needs,
// and nothing from a stop string on.
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
  ChoiceText(const Tokenizer& tokenizer, const std::vector<std::string>& stop, const std::vector<std::string>& visible)
      : tokenizer_(tokenizer), visible_(visible), detokenizer_(tokenizer, /*skip_special=*/true), stop_(stop) {}

  std::string push(int32_t token) {
    if (!is_visible(token)) return stop_.push(detokenizer_.push(token));
    return stop_.push(detokenizer_.finish() + std::string(tokenizer_.token_text(token)));
  }
  std::string finish() {
    std::string rest = stop_.push(detokenizer_.finish());
    return rest += stop_.finish();
  }
  bool stopped() const { return stop_.stopped(); }

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
};

}  // namespace millrace
