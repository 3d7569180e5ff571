#include "cli/chat/markdown.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"

namespace millrace {
namespace {

constexpr std::string_view kBold = "\033[1m", kItalic = "\033[3m", kCode = "\033[36m", kDim = "\033[2m",
                           kPlain = "\033[0m";
constexpr size_t kLongestSpan = 400;  // bytes that are held back for the end of a span

// Other control characters could move the cursor or recolour the terminal.
bool is_shown(char c) { return c == '\n' || c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f); }

size_t run_length(std::string_view text, char c) { return std::min(text.find_first_not_of(c), text.size()); }

// The delimiter run of a span and the place of its partner.
struct Span {
  enum Kind { None, Open, Complete } kind = None;  // Open: later text decides
  size_t width = 0, close = 0;
};

// The place of a run of exactly `width` times `c`, at or behind `from`. `complete`: no text follows.
size_t find_run(std::string_view text, char c, size_t width, size_t from, bool complete) {
  for (size_t at = text.find(c, from); at != std::string_view::npos; at = text.find(c, at)) {
    const size_t length = run_length(text.substr(at), c);
    if (at + length == text.size() && !complete) return std::string_view::npos;  // the run may go on
    if (length == width) return at;
    at += length;
  }
  return std::string_view::npos;
}

Span find_span(std::string_view text, char before, bool complete) {
  const char c = text.front();
  Span span{.width = run_length(text, c)};
  const Span open{.kind = complete || text.size() > kLongestSpan ? Span::None : Span::Open};
  if (span.width == text.size()) return open;
  if (c != '`') {
    // A marker inside of a word or in front of a space opens nothing: 2 * 3, snake_case.
    if (span.width > 3 || is_ascii_alnum(before) || is_ascii_space(text[span.width])) return {};
  }
  for (size_t from = span.width;; from = span.close + span.width) {
    span.close = find_run(text, c, span.width, from, complete);
    if (span.close == std::string_view::npos) return open;
    const size_t end = span.close + span.width;
    if (c == '_' && end == text.size() && !complete) return open;
    const bool ends_word = c != '_' || end == text.size() || !is_ascii_alnum(text[end]);
    if (c == '`' || (!is_ascii_space(text[span.close - 1]) && ends_word)) break;
  }
  span.kind = Span::Complete;
  return span;
}

std::string shown_spans(std::string_view text, std::string_view around);

std::string shown_span(std::string_view inner, char c, size_t width, std::string_view around) {
  if (c == '`') return std::string(kCode) + std::string(inner) + std::string(kPlain) + std::string(around);
  std::string style;
  if (width >= 2) style += kBold;
  if (width != 2) style += kItalic;
  return style + shown_spans(inner, std::string(around) + style) + std::string(kPlain) + std::string(around);
}

// Shows as much as is decided and returns its length.
size_t show(std::string_view text, char& before, bool complete, std::string_view around, std::string& out) {
  size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '`' || c == '*' || c == '_') {
      const std::string_view rest = text.substr(at);
      const Span span = find_span(rest, before, complete);
      if (span.kind == Span::Open) break;
      const size_t marker = run_length(rest, c);
      if (span.kind == Span::Complete) {
        out += shown_span(rest.substr(span.width, span.close - span.width), c, span.width, around);
        at += span.close + span.width;
      } else {
        out += rest.substr(0, marker);
        at += marker;
      }
      before = c;
      continue;
    }
    out += c;
    before = c;
    ++at;
  }
  return at;
}

std::string shown_spans(std::string_view text, std::string_view around) {
  std::string out;
  char before = ' ';
  show(text, before, /*complete=*/true, around, out);
  return out;
}

bool is_rule(std::string_view line) {
  line = ascii_trim(line);
  return line.size() >= 3 && (line[0] == '-' || line[0] == '*' || line[0] == '_') &&
         run_length(line, line[0]) == line.size();
}

}  // namespace

std::string Markdown::push(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_shown(c)) take(c, out);
  }
  if (place_ == Place::Line && !in_fence_) show_spans(/*complete=*/false, out);
  return out;
}

std::string Markdown::finish() {
  std::string out;
  end_line(out);
  if (in_fence_) out += kPlain;
  *this = {};
  return out;
}

void Markdown::take(char c, std::string& out) {
  if (c == '\n') {
    end_line(out);
    out += '\n';
    return;
  }
  if (place_ == Place::Line && in_fence_) {
    out += c;
    return;
  }
  held_ += c;
  if (place_ == Place::LineStart) take_line_start(/*complete=*/false, out);
}

// Decides what the line is as soon as its first characters tell. False: they do not yet.
bool Markdown::take_line_start(bool complete, std::string& out) {
  const size_t indent = run_length(held_, ' ');
  const std::string_view text = std::string_view(held_).substr(indent);
  if (text.empty() && !complete) return false;
  const char c = text.empty() ? '\0' : text[0];
  const size_t run = run_length(text, c);
  const bool decided = complete || run < text.size();
  if (c == '`' || c == '~') {
    if (!decided && run < 3) return false;
    if (run >= 3) {
      place_ = Place::FenceLine;
      return true;
    }
  }
  place_ = Place::Line;
  before_ = ' ';
  if (in_fence_) {
    out += std::exchange(held_, {});
    return true;
  }
  if (c == '#' || c == '-' || c == '*' || c == '+' || c == '>' || c == '_') {
    if (!decided) {
      place_ = Place::LineStart;
      return false;
    }
    const bool spaced = run < text.size() && text[run] == ' ';
    if (complete && is_rule(text)) {
      out += std::string(kDim) + "────────" + std::string(kPlain);
      held_.clear();
    } else if (c == '#' && run <= 6 && spaced) {
      style_ = kBold;
      out += kBold;
      held_.erase(0, indent + run + 1);
    } else if (c == '>' && run == 1) {
      out += std::string(kDim) + "│ " + std::string(kPlain);
      held_.erase(0, indent + 1 + (spaced ? 1 : 0));
    } else if (c != '#' && c != '_' && c != '>' && run == 1 && spaced) {
      out += held_.substr(0, indent) + "• ";
      held_.erase(0, indent + 2);
    }
  }
  return true;
}

void Markdown::end_line(std::string& out) {
  if (place_ == Place::LineStart) take_line_start(/*complete=*/true, out);
  if (place_ == Place::FenceLine) {
    const std::string_view marker = ascii_trim(held_);
    const bool closes = run_length(marker, marker[0]) == marker.size();
    if (in_fence_ && !closes) {
      out += held_;  // a line of code that begins like a fence
    } else {
      out += std::string(kDim) + held_ + std::string(kPlain);
      in_fence_ = !in_fence_;
    }
    held_.clear();
    if (in_fence_) out += kCode;
  } else if (!in_fence_) {
    show_spans(/*complete=*/true, out);
    if (!style_.empty()) out += kPlain;
  }
  style_ = {};
  place_ = Place::LineStart;
}

void Markdown::show_spans(bool complete, std::string& out) {
  held_.erase(0, show(held_, before_, complete, style_, out));
}

}  // namespace millrace
