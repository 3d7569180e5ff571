#include <algorithm>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/builtin/attribute_path.h"
#include "text/jinja/builtin/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/split.h"
#include "text/jinja/value/text_builder.h"

namespace millrace::jinja {
namespace {

struct Keyed {
  Value key, item;
};

// Stable in both directions, like Python's sorted().
void sort_by_key(std::vector<Keyed>& items, bool reverse) {
  if (reverse) std::reverse(items.begin(), items.end());
  std::stable_sort(items.begin(), items.end(), [](const Keyed& a, const Keyed& b) { return less(a.key, b.key); });
  if (reverse) std::reverse(items.begin(), items.end());
}

Value items_of(const std::vector<Keyed>& keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (const Keyed& entry : keyed) items.push_back(entry.item);
  return Value::list(std::move(items));
}

Value first_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "first", {});
  const std::optional<Value> item = iterate(subject)->next();
  return item ? *item : Value::undefined_hint("No first item, sequence was empty.");
}

Value last_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "last", {});
  const IteratorPtr items = iterate_reversed(subject);
  if (!items) fail_template("'{}' object is not reversible", subject.type_name());
  const std::optional<Value> item = items->next();
  return item ? *item : Value::undefined_hint("No last item, sequence was empty.");
}

Value length_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "length", {});
  const std::optional<size_t> length = length_of(subject);
  if (!length) fail_template("object of type '{}' has no len()", subject.type_name());
  return Value::integer(static_cast<Integer>(*length));
}

Value list_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "list", {});
  return Value::list(to_vector(subject));
}

Value reverse_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "reverse", {});
  if (subject.is_string()) {
    std::vector<Value> characters = to_vector(subject);
    TextBuilder text;
    for (auto at = characters.rbegin(); at != characters.rend(); ++at) text.append_value(*at);
    return text.take_value(subject.is_markup());
  }
  if (!is_iterable(subject)) fail_template("reverse: argument must be iterable");
  if (!length_of(subject)) {
    std::vector<Value> items = to_vector(subject);
    std::reverse(items.begin(), items.end());
    return Value::list(std::move(items));
  }
  return make_generator("reverse", subject.depth() + 1, [subject]() -> Generator::Next {
    const std::shared_ptr<Iterator> items = iterate_reversed(subject);
    return [items] { return items->next(); };
  });
}

Value join_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "join", {"d?", "attribute?"});
  const Value separator = args.has(0) ? args[0] : Value::text("", {});
  const AttributePath path(args.value_or_none(1));
  TextBuilder out;
  const IteratorPtr items = iterate(subject);
  for (bool first = true; const std::optional<Value> item = items->next(); first = false) {
    if (!first) out.append_value(separator);
    out.append_value(path.get(*item));
  }
  return out.take_value();
}

Value sort_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "sort", {"reverse?", "case_sensitive?", "attribute?"});
  const bool case_matters = args.flag(1, false);
  std::vector<AttributePath> paths;
  if (args.has(2) && args[2].is_string()) {
    for (const auto part : split_text(args[2].str(), ",", -1)) paths.emplace_back(Value::string(std::string(part)));
  } else {
    paths.emplace_back(args.value_or_none(2));
  }
  std::vector<Keyed> keyed;
  for (const Value& item : to_vector(subject)) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      key.push_back(case_matters ? path.get(item) : ignore_case(path.get(item)));
    }
    keyed.push_back({Value::list(std::move(key)), item});
  }
  sort_by_key(keyed, args.flag(0, false));
  return items_of(keyed);
}

Value dictsort_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "dictsort", {"case_sensitive?", "by?", "reverse?"});
  require_defined(subject);
  if (!subject.is_dict()) fail_template("dictsort needs a dict, not '{}'", subject.type_name());
  const std::string by = args.has(1) ? args.text(1) : "key";
  if (by != "key" && by != "value") fail_template("You can only sort by either \"key\" or \"value\"");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : subject.as_dict().entries()) {
    const Value& sorted_by = by == "key" ? key : value;
    keyed.push_back({args.flag(0, false) ? sorted_by : ignore_case(sorted_by), Value::tuple({key, value})});
  }
  sort_by_key(keyed, args.flag(2, false));
  return items_of(keyed);
}

Value unique_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "unique", {"case_sensitive?", "attribute?"});
  const bool case_matters = args.flag(0, false);
  const AttributePath path(args.value_or_none(1));
  const int depth = std::max(subject.depth(), arguments.depth()) + 1;
  return make_generator("unique", depth, [subject, path, case_matters]() -> Generator::Next {
    const std::shared_ptr<Iterator> items = iterate(subject);
    const auto seen = std::make_shared<Dict>();
    return [items, seen, path, case_matters]() -> std::optional<Value> {
      while (std::optional<Value> item = items->next()) {
        const Value found = path.get(*item);
        const Value key = case_matters ? found : ignore_case(found);
        if (seen->find(key)) continue;
        seen->set(key, Value());
        return item;
      }
      return std::nullopt;
    };
  });
}

template <bool Largest>
Value extreme_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, Largest ? "max" : "min", {"case_sensitive?", "attribute?"});
  const AttributePath path(args.value_or_none(1));
  std::optional<Keyed> best;
  const IteratorPtr items = iterate(subject);
  while (std::optional<Value> item = items->next()) {
    const Value found = path.get(*item);
    Value key = args.flag(0, false) ? found : ignore_case(found);
    if (!best || (Largest ? less(best->key, key) : less(key, best->key))) {
      best = Keyed{std::move(key), *std::move(item)};
    }
  }
  return best ? best->item : Value::undefined_hint("No aggregated item, sequence was empty.");
}

Value sum_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "sum", {"attribute?", "start?"});
  const AttributePath path(args.value_or_none(0));
  Value total = args.has(1) ? args[1] : Value::integer(0);
  if (total.is_string()) fail_template("sum() can't sum strings [use ''.join(seq) instead]");
  const IteratorPtr items = iterate(subject);
  while (const std::optional<Value> item = items->next()) {
    total = apply(BinaryOperator::Add, total, path.get(*item));
  }
  return total;
}

Value items_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "items", {});
  return make_generator("items", subject.depth() + 1, [subject]() -> Generator::Next {
    if (subject.is_undefined()) return nullptr;
    if (!subject.is_dict()) fail_template("Can only get item pairs from a mapping.");
    const auto at = std::make_shared<size_t>(0);
    return [subject, at]() -> std::optional<Value> {
      const auto& entries = subject.as_dict().entries();
      if (*at == entries.size()) return std::nullopt;
      const auto& [key, value] = entries[(*at)++];
      return Value::tuple({key, value});
    };
  });
}

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"count", length_filter},      {"dictsort", dictsort_filter},
      {"first", first_filter},       {"items", items_filter},
      {"join", join_filter},         {"last", last_filter},
      {"length", length_filter},     {"list", list_filter},
      {"max", extreme_filter<true>}, {"min", extreme_filter<false>},
      {"reverse", reverse_filter},   {"sort", sort_filter},
      {"sum", sum_filter},           {"unique", unique_filter},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace millrace::jinja
