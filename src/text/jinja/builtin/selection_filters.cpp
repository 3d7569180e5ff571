// map, select, reject, selectattr and rejectattr: lazy sequences that apply filters and tests by name.
#include "text/jinja/arguments.h"
#include "text/jinja/builtin/attribute_path.h"
#include "text/jinja/builtin/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/repr.h"

namespace millrace::jinja {
namespace {

// The function of map: an attribute, or a filter with arguments.
std::function<Value(const Value&)> mapping_of(Interpreter& interpreter, const Arguments& arguments) {
  if (const Value* attribute = arguments.find_named("attribute"); attribute && arguments.positional.empty()) {
    const Value* otherwise = arguments.find_named("default");
    for (const auto& [name, value] : arguments.named) {
      if (name != "attribute" && name != "default") fail_template("Unexpected keyword argument {}", in_quotes(name));
    }
    return [path = AttributePath(*attribute), stand_in = otherwise ? *otherwise : Value()](const Value& item) {
      return path.get(item, stand_in);
    };
  }
  if (arguments.positional.empty()) fail_template("map requires a filter argument");
  if (!arguments.positional[0].is_string()) fail_template("map needs the name of a filter");
  Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  return [&interpreter, name = arguments.positional[0].str(), rest = std::move(rest)](const Value& item) {
    return interpreter.apply_filter(name, item, rest);
  };
}

Value map_filter(Interpreter& interpreter, const Value& subject, const Arguments& arguments) {
  const int depth = std::max(subject.depth(), arguments.depth()) + 1;
  return make_generator("map", depth, [&interpreter, subject, arguments]() -> Generator::Next {
    if (!truthy(subject)) return nullptr;
    const std::shared_ptr<Iterator> items = iterate(subject);
    return [items, mapping = mapping_of(interpreter, arguments)]() -> std::optional<Value> {
      const std::optional<Value> item = items->next();
      return item ? std::optional(mapping(*item)) : std::nullopt;
    };
  });
}

// The condition of select, reject, selectattr and rejectattr: truthiness or a test, of the item or of an attribute.
std::function<bool(const Value&)> condition_of(Interpreter& interpreter, const Arguments& arguments,
                                               bool of_attribute) {
  if (of_attribute && arguments.positional.empty()) fail_template("Missing parameter for attribute name");
  const AttributePath path(of_attribute ? arguments.positional[0] : Value());
  const size_t name_at = of_attribute ? 1 : 0;
  if (arguments.positional.size() <= name_at) return [path](const Value& item) { return truthy(path.get(item)); };
  const Value& name = arguments.positional[name_at];
  if (!name.is_string()) fail_template("No test named {}.", repr(name));
  const auto first = arguments.positional.begin() + static_cast<ptrdiff_t>(name_at) + 1;
  Arguments rest{{first, arguments.positional.end()}, arguments.named};
  return [&interpreter, path, test = name.str(), rest = std::move(rest)](const Value& item) {
    return interpreter.apply_test(test, path.get(item), rest);
  };
}

template <bool Wanted, bool OfAttribute>
Value choose_filter(Interpreter& interpreter, const Value& subject, const Arguments& arguments) {
  const int depth = std::max(subject.depth(), arguments.depth()) + 1;
  return make_generator("select_or_reject", depth, [&interpreter, subject, arguments]() -> Generator::Next {
    if (!truthy(subject)) return nullptr;
    const std::shared_ptr<Iterator> items = iterate(subject);
    return [items, holds = condition_of(interpreter, arguments, OfAttribute)]() -> std::optional<Value> {
      while (std::optional<Value> item = items->next()) {
        if (holds(*item) == Wanted) return item;
      }
      return std::nullopt;
    };
  });
}

}  // namespace

FilterFunction find_selection_filter(std::string_view name) {
  if (name == "map") return map_filter;
  if (name == "select") return choose_filter<true, false>;
  if (name == "reject") return choose_filter<false, false>;
  if (name == "selectattr") return choose_filter<true, true>;
  if (name == "rejectattr") return choose_filter<false, true>;
  return nullptr;
}

}  // namespace millrace::jinja
