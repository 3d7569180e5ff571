// Cuts a streamed text before the first stop string. Holds back text that may be the beginning of a stop string. Linear
// in the text; the result does not depend on how the text is cut into pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // throws Usage for an empty string

  // Takes the next piece and returns the text that is certainly in front of any stop string. The stop string that ends
  // first wins; of those that end together, the longest.
  std::string push(std::string_view piece);
  std::string finish();  // end of the text: returns the held-back part
  bool stopped() const { return stopped_; }
  const std::string& found() const { return found_; }  // the stop string that ended the text

 private:
  // Length of the prefix of one stop string that the text ends with, updated byte by byte (Knuth, Morris, Pratt).
  struct Matcher {
    std::string text;
    std::vector<size_t> shorter;  // [n]: length of the longest proper prefix of text that its first n bytes end with
    size_t matched = 0;

    explicit Matcher(std::string stop);
    void advance(char byte);
    bool complete() const { return matched == text.size(); }
  };

  std::vector<Matcher> matchers_;
  std::string held_, found_;
  bool stopped_ = false;
};

}  // namespace millrace
