#include "grammar/pattern_lengths.h"

namespace millrace {

PatternLengths lengths_of(const PatternNode& node) {
  PatternLengths range;
  switch (node.kind) {
    case PatternNode::Kind::Characters:
      return {1, 1};
    case PatternNode::Kind::Sequence:
      for (const PatternNode& part : node.parts) {
        const PatternLengths inside = lengths_of(part);
        range.least += inside.least;
        range.most = range.most < 0 || inside.most < 0 ? -1 : range.most + inside.most;
      }
      return range;
    case PatternNode::Kind::Choice:
      range = lengths_of(node.parts.front());
      for (size_t i = 1; i < node.parts.size(); ++i) {
        const PatternLengths inside = lengths_of(node.parts[i]);
        range.least = std::min(range.least, inside.least);
        range.most = range.most < 0 || inside.most < 0 ? -1 : std::max(range.most, inside.most);
      }
      return range;
    case PatternNode::Kind::Repeat: {
      const PatternLengths inside = lengths_of(node.parts.front());
      return {multiply_counts(inside.least, node.least), multiply_counts(inside.most, node.most)};
    }
    default:
      return range;
  }
}

}  // namespace millrace
