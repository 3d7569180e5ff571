#include "text/jinja/value/content.h"

#include <algorithm>

namespace millrace::jinja {

bool has_content(const Value& value) { return value.has_content(); }

bool has_content(const Arguments& arguments) {
  return std::any_of(arguments.positional.begin(), arguments.positional.end(),
                     [](const Value& v) { return has_content(v); }) ||
         std::any_of(arguments.named.begin(), arguments.named.end(),
                     [](const auto& named) { return has_content(named.second); });
}

void append_ranges(const ContentRanges& content, size_t begin, size_t end, size_t at, ContentRanges& to) {
  for (auto range = std::upper_bound(content.begin(), content.end(), begin,
                                     [](size_t position, const auto&r) { return position < r.second; });
       range != content.end() && range->first < end; ++range) {
    const size_t first = std::max(range->first, begin) - begin + at, last = std::min(range->second, end) - begin + at;
    if (!to.empty() && to.back().second == first) {
      to.back().second = last;
    } else {
      to.emplace_back(first, last);
    }
  }
}

Value piece_of(const Value& whole, std::string_view part) {
  const Text& text = whole.text();
  ContentRanges ranges;
  if (text.content && !part.empty()) {
    const auto begin = static_cast<size_t>(part.data() - text.bytes.data());
    append_ranges(*text.content, begin, begin + part.size(), 0, ranges);
  }
  return Value::text(std::string(part), std::move(ranges), text.markup);
}

Value settle_content(Value result, bool from_content) {
  if (!from_content) return result;
  if (result.is_string()) {
    const Text& text = result.text();
    if (text.content) return result;
    return Value::text(text.bytes, text.bytes.empty() ? ContentRanges() : ContentRanges{{0, text.bytes.size()}},
                       text.markup);
  }
  const auto is_open = [](const Value& item) {
    return item.is_sequence() || (item.is_string() && !item.text().content);
  };
  if (!result.is_sequence() || std::none_of(result.items().begin(), result.items().end(), is_open)) return result;
  std::vector<Value> items;
  Budget::spend(static_cast<int64_t>(result.items().size()));  // shared parts are copied once for each path to them
  for (const Value& item : result.items()) items.push_back(settle_content(item, true));
  return result.is_list() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

}  // namespace millrace::jinja
