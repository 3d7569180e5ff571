#include "text/regex/matcher.h"

#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace millrace {

using Op = RegexProgram::Op;

size_t RegexMatcher::one(uint32_t set, size_t position) const {
  if (position >= text_.size()) return 0;
  const CodeTable& table = program_.sets[set];
  const auto byte = static_cast<unsigned char>(text_[position]);
  if (byte < 0x80) return table.contains_ascii(byte);
  const Character c = decode_utf8(text_.data() + position);
  return table.contains(c.code) ? c.length : 0;
}

bool RegexMatcher::is_word_at(size_t position) const {
  return position < text_.size() && is_word(decode_utf8(text_.data() + position).code);
}

bool RegexMatcher::holds(RegexNode::Anchor anchor, size_t position) const {
  using enum RegexNode::Anchor;
  const size_t size = text_.size();
  switch (anchor) {
    case LineBegin:
      return position == 0 || (text_[position - 1] == '\n' && position < size);
    case LineEnd:
      return position == size || text_[position] == '\n';
    case TextBegin:
      return position == 0;
    case TextEnd:
      return position == size;
    case LastLineEnd:
      return position == size || (position + 1 == size && text_[position] == '\n');
    case WordBorder:
    case NoWordBorder: {
      const bool before = position > 0 && is_word_at(previous_utf8(text_, position));
      return (before != is_word_at(position)) == (anchor == WordBorder);
    }
  }
  return false;
}

// Runs without the memo while the number of steps is small for the bytes so far; beyond that, starts again with the
// memo.
size_t RegexMatcher::match(size_t start) {
  constexpr size_t kFree = 4096, kPerByte = 32;
  if (!memo_) {
    allowed_ = kFree + kPerByte * start;
    const size_t end = run<false>(0, start, false);
    if (work_ <= allowed_) return end;
    memo_.emplace(program_.inner_states, text_.size());
    stack_.clear();
  }
  return run<true>(0, start, false);
}

template <bool kRemember>
size_t RegexMatcher::run(uint32_t code, size_t position, bool inner) {
  const size_t base = stack_.size();
  for (;;) {
    const Instruction& i = program_.code[code];
    if (!kRemember && ++work_ > allowed_) return kNoMatch;
    bool good = false;
    if (kRemember && i.state != RegexProgram::kNone && i.op != Op::PossessiveLoop) {
      const uint32_t known = memo_->outcome(i.state, position);
      if (known > RegexMemo::kFails) return succeed<kRemember>(base, RegexMemo::end_of(known), inner);
      if (known == RegexMemo::kFails) {
        if (!backtrack<kRemember>(base, code, position)) return kNoMatch;
        continue;
      }
    }
    switch (i.op) {
      case Op::Set: {
        const size_t length = one(i.a, position);
        good = length > 0;
        position += length;
        ++code;
        break;
      }
      case Op::Loop: {
        size_t known_end = kNoMatch;
        const size_t end = loop_end<kRemember>(i, position, known_end);
        stack_.push_back({code, 0, static_cast<uint32_t>(position), static_cast<uint32_t>(end)});
        if (known_end != kNoMatch) return succeed<kRemember>(base, known_end, inner);
        position = end;
        ++code;
        good = true;
        break;
      }
      case Op::PossessiveLoop:
        position = possessive_end<kRemember>(i, position);
        ++code;
        good = true;
        break;
      case Op::BoundedLoop: {
        size_t end = position, lowest = position;
        int count = 0;
        for (size_t length; count < i.max && (length = one(i.a, end)) > 0; ++count) {
          end += length;
          if (count + 1 == i.min) lowest = end;
        }
        work_ += count;
        good = count >= i.min;
        if (good) {
          stack_.push_back(
              {code, static_cast<uint32_t>(position), static_cast<uint32_t>(lowest), static_cast<uint32_t>(end)});
        }
        position = end;
        ++code;
        break;
      }
      case Op::Split: {
        good = true;
        const bool possible =
            i.guard == RegexProgram::kNone ||
            (position < text_.size() && program_.guards[i.guard][static_cast<unsigned char>(text_[position])]);
        if (possible) stack_.push_back({code, static_cast<uint32_t>(position), 0, 0});
        code = possible ? i.a : i.b;
        break;
      }
      case Op::Jump:
        code = i.a;
        good = true;
        break;
      case Op::Look:
      case Op::LookBehind:
        good = look<kRemember>(i, position) != i.negative;
        code = i.b;
        break;
      case Op::Atomic: {
        const size_t end = run<kRemember>(i.a, position, true);
        good = end != kNoMatch;
        position = end;
        code = i.b;
        break;
      }
      case Op::Anchor:
        good = holds(i.anchor, position);
        ++code;
        break;
      case Op::Match:
        return succeed<kRemember>(base, position, inner);
    }
    if (!good && !backtrack<kRemember>(base, code, position)) return kNoMatch;
  }
}

// Takes the latest choice with an untried branch; false: there is none above `base`.
template <bool kRemember>
bool RegexMatcher::backtrack(size_t base, uint32_t& code, size_t& position) {
  while (stack_.size() > base) {
    Frame& frame = stack_.back();
    const Instruction& i = program_.code[frame.code];
    ++work_;
    if (i.op == Op::Split) {
      if (frame.current == 0) {
        code = i.b;
        position = frame.position;
        frame.current = 1;
        if (!kRemember) stack_.pop_back();
        return true;
      }
      if (kRemember) memo_->fails(i.state, frame.position);
    } else {
      // `current` inside of a loop is itself a choice, which has now failed wherever the loop was entered.
      if (kRemember && i.op == Op::Loop) memo_->fails(i.state, frame.current);
      if (frame.current > frame.lowest) {
        frame.current = static_cast<uint32_t>(previous_utf8(text_, frame.current));
        code = frame.code + 1;
        position = frame.current;
        return true;
      }
      if (kRemember && i.op == Op::BoundedLoop) memo_->fails(i.state, frame.position);
    }
    stack_.pop_back();
  }
  return false;
}

// Drops the open choices. Inside of a lookaround they all led to this end, which goes into the memo.
template <bool kRemember>
size_t RegexMatcher::succeed(size_t base, size_t end, bool inner) {
  for (size_t f = base; kRemember && inner && f < stack_.size(); ++f) {
    const Frame& frame = stack_[f];
    const Instruction& i = program_.code[frame.code];
    if (i.op != Op::Loop) {
      memo_->succeeds(i.state, frame.position, end);
      continue;
    }
    for (size_t p = frame.lowest; p <= frame.current; p += p < text_.size() ? utf8_length(text_[p]) : 1) {
      memo_->succeeds(i.state, p, end);
    }
  }
  stack_.resize(base);
  return end;
}

// The end of a run of the set. With the memo, it stops where the outcome is known: before a known failure, or at a
// known success, which gives the end of the whole match.
template <bool kRemember>
size_t RegexMatcher::loop_end(const Instruction& i, size_t position, size_t& known_end) {
  size_t end = position;
  for (size_t length; (length = one(i.a, end)) > 0; end += length) {
    if (!kRemember) continue;
    const uint32_t known = memo_->outcome(i.state, end + length);
    if (known == RegexMemo::kFails) return end;
    if (known > RegexMemo::kFails) return known_end = RegexMemo::end_of(known), end;
  }
  work_ += end - position;
  return end;
}

template <bool kRemember>
size_t RegexMatcher::possessive_end(const Instruction& i, size_t position) {
  size_t end = position, length = 0;
  if constexpr (kRemember) {
    uint32_t known = RegexMemo::kUnknown;
    while ((known = memo_->outcome(i.state, end)) == RegexMemo::kUnknown && (length = one(i.a, end)) > 0) end += length;
    const size_t last = known == RegexMemo::kUnknown ? end : RegexMemo::end_of(known);
    for (size_t p = position; p < end; p += utf8_length(text_[p])) memo_->succeeds(i.state, p, last);
    return last;
  }
  while ((length = one(i.a, end)) > 0) end += length;
  work_ += end - position;
  return end;
}

template <bool kRemember>
bool RegexMatcher::look(const Instruction& i, size_t position) {
  if (i.op == Op::Look) return run<kRemember>(i.a, position, true) != kNoMatch;
  for (const RegexProgram::Behind& behind : program_.behinds[i.a]) {
    size_t start = position;
    int back = 0;
    while (back < behind.characters && start > 0) start = previous_utf8(text_, start), ++back;
    if (back == behind.characters && run<kRemember>(behind.code, start, true) != kNoMatch) return true;
  }
  return false;
}

}  // namespace millrace
