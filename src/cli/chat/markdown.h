// Shows streamed Markdown on a terminal: headings, lists, quotes, rules, fenced code, and bold, italic and code spans,
// as ANSI escapes. Text that is not Markdown passes unchanged, and so do markers without a partner.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

class Markdown {
 public:
  // Returns what can be shown. The beginning of a line and an open span are held back until their meaning is known.
  std::string push(std::string_view text);
  std::string finish();  // the rest

 private:
  enum class Place { LineStart, Line, FenceLine };

  void take(char c, std::string& out);
  bool take_line_start(bool complete, std::string& out);
  void end_line(std::string& out);
  void show_spans(bool complete, std::string& out);

  Place place_ = Place::LineStart;
  bool in_fence_ = false;
  std::string held_;        // of the current line
  std::string_view style_;  // of the whole line: a heading's
  char before_ = ' ';       // the character in front of held_
};

}  // namespace millrace
