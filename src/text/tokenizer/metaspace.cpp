#include "text/tokenizer/metaspace.h"

#include "text/unicode/utf8.h"

namespace millrace {
namespace {

// Visits every ▁ that does not follow another ▁, with the preceding character.
void visit_borders(std::string_view text, FunctionRef<void(size_t at, char32_t before)> visit) {
  for (size_t at = text.find(kMetaspace, 1); at != std::string_view::npos;
       at = text.find(kMetaspace, at + kMetaspace.size())) {
    const char32_t before = decode_utf8(text.data() + previous_utf8(text, at)).code;
    if (before != 0x2581) visit(at, before);
  }
}

}  // namespace

MetaspaceSplitter::MetaspaceSplitter(const Vocabulary& vocabulary) {
  if (vocabulary.find(kMetaspace) == Vocabulary::kNone) return;
  enabled_ = true;
  CodeSet joined;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    visit_borders(vocabulary.text(id), [&](size_t, char32_t before) {
      if (!joined.contains(before)) joined.add(before, before);
    });
  }
  joined_ = std::move(joined);
}

void MetaspaceSplitter::split(std::string_view text, FunctionRef<void(std::string_view word)> visit) const {
  size_t begin = 0;
  if (enabled_) {
    visit_borders(text, [&](size_t at, char32_t before) {
      if (joined_.contains(before)) return;
      visit(text.substr(begin, at - begin));
      begin = at;
    });
  }
  visit(text.substr(begin));
}

}  // namespace millrace
