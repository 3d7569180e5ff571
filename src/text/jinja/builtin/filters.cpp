#include "text/jinja/builtin/filters.h"

#include <unordered_map>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/template_error.h"

namespace millrace::jinja {
namespace {

Value default_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "default", {"default_value?", "boolean?"});
  const bool replaced = subject.is_undefined() || (args.flag(1, false) && !truthy(subject));
  if (!replaced) return subject;
  return args.has(0) ? args[0] : Value::string("");
}

Value attr_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "attr", {"name"});
  const std::string& name = args.text(0);
  if (std::optional<Value> attribute = find_attribute(subject, name)) return *std::move(attribute);
  return Value::undefined({.reason = UndefinedInfo::Reason::Attribute,
                           .name = name,
                           .owner = std::string(subject.type_name()) + " object"});
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"attr", attr_filter},
      {"d", default_filter},
      {"default", default_filter},
  };
  const auto found = kFilters.find(name);
  if (found != kFilters.end()) return found->second;
  for (const auto find : {find_text_filter, find_sequence_filter, find_selection_filter, find_number_filter}) {
    if (const FilterFunction filter = find(name)) return filter;
  }
  return nullptr;
}

}  // namespace millrace::jinja
