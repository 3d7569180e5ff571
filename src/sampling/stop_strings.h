// Ends a text before the first of some strings, while the text streams by in pieces of any size: what may yet become a
// stop string is held back until that is clear. Linear in the text, and independent of where the pieces are cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // throws Usage where one is empty

  // Takes the next piece and returns the text that is certainly part of the answer. The string whose end comes first
  // stops it; of those that end together, the one that begins first.
  std::string push(std::string_view piece);
  std::string finish();  // no more text comes: what was held back
  bool stopped() const { return stopped_; }

 private:
  // How much of one string the text ends with, kept up byte by byte (Knuth, Morris, Pratt).
  struct Matcher {
    std::string text;
    std::vector<size_t> shorter;  // [n]: the longest proper prefix that text's first n bytes end with
    size_t matched = 0;

    explicit Matcher(std::string stop);
    void advance(char byte);
    bool complete() const { return matched == text.size(); }
  };

  std::vector<Matcher> matchers_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace millrace
