#include "grammar/pattern/pattern_lengths.h"

namespace millrace {

PatternLengths lengths_of(const RegexNode& node) {
  PatternLengths range;
  switch (node.kind) {
    case RegexNode::Kind::Set:
      return {1, 1};
    case RegexNode::Kind::Sequence:
      for (const RegexNode& part : node.children) {
        const PatternLengths inside = lengths_of(part);
        range.least += inside.least;
        range.most = range.most < 0 || inside.most < 0 ? -1 : range.most + inside.most;
      }
      return range;
    case RegexNode::Kind::Alternatives:
      range = lengths_of(node.children.front());
      for (size_t i = 1; i < node.children.size(); ++i) {
        const PatternLengths inside = lengths_of(node.children[i]);
        range.least = std::min(range.least, inside.least);
        range.most = range.most < 0 || inside.most < 0 ? -1 : std::max(range.most, inside.most);
      }
      return range;
    case RegexNode::Kind::Repeat: {
      const PatternLengths inside = lengths_of(node.children.front());
      return {multiply_counts(inside.least, node.min), multiply_counts(inside.most, node.max)};
    }
    default:
      return range;
  }
}

}  // namespace millrace
