#include "sampling/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace millrace {

StopStrings::Matcher::Matcher(std::string stop) : text(std::move(stop)), shorter(text.size() + 1, 0) {
  for (size_t n = 2; n <= text.size(); ++n) {
    size_t length = shorter[n - 1];
    while (length > 0 && text[length] != text[n - 1]) length = shorter[length];
    shorter[n] = text[length] == text[n - 1] ? length + 1 : 0;
  }
}

void StopStrings::Matcher::advance(char byte) {
  while (matched > 0 && text[matched] != byte) matched = shorter[matched];
  if (text[matched] == byte) ++matched;
}

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) fail(ErrorKind::Usage, "a stop string is empty");
    matchers_.emplace_back(std::move(stop));
  }
}

std::string StopStrings::push(std::string_view piece) {
  if (stopped_) return "";
  for (const char byte : piece) {
    held_ += byte;
    size_t longest = 0;
    for (Matcher& matcher : matchers_) {
      matcher.advance(byte);
      if (!matcher.complete() || matcher.matched <= longest) continue;
      longest = matcher.matched;
      found_ = matcher.text;
    }
    if (longest == 0) continue;
    stopped_ = true;
    held_.resize(held_.size() - longest);
    return std::move(held_);
  }
  size_t undecided = 0;
  for (const Matcher& matcher : matchers_) undecided = std::max(undecided, matcher.matched);
  std::string certain = held_.substr(0, held_.size() - undecided);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::finish() { return stopped_ ? "" : std::exchange(held_, ""); }

}  // namespace millrace
