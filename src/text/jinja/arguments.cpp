#include "text/jinja/arguments.h"

#include <algorithm>

#include "text/jinja/template_error.h"
#include "text/jinja/value/object.h"

namespace millrace::jinja {

const Value* Arguments::find_named(std::string_view name) const {
  const auto found = std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
  return found == named.end() ? nullptr : &found->second;
}

int Arguments::depth() const {
  int depth = 0;
  for (const Value& value : positional) depth = std::max(depth, value.depth());
  for (const auto& [name, value] : named) depth = std::max(depth, value.depth());
  return depth;
}

BoundArguments::BoundArguments(const Arguments& arguments, std::string_view function,
                               std::initializer_list<std::string_view> parameters)
    : function_(function) {
  struct Parameter {
    std::string_view name;
    bool optional, keyword;
  };
  std::vector<Parameter> declared;
  for (std::string_view name : parameters) {
    if (name == "/") {
      for (Parameter& parameter : declared) parameter.keyword = false;
      continue;
    }
    const bool optional = name.back() == '?';
    if (optional) name.remove_suffix(1);
    declared.push_back({name, optional, true});
  }

  if (arguments.positional.size() > declared.size()) {
    fail_template("{}() takes at most {} arguments, {} were given", function, declared.size(),
                  arguments.positional.size());
  }
  values_.resize(declared.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const std::string_view wanted = name;
    const auto found = std::find_if(declared.begin(), declared.end(),
                                    [&](const Parameter& p) { return p.keyword && p.name == wanted; });
    if (found == declared.end()) fail_template("{}() got an unexpected keyword argument {}", function, in_quotes(name));
    const Value*& slot = values_[static_cast<size_t>(found - declared.begin())];
    if (slot) fail_template("{}() got multiple values for argument {}", function, in_quotes(name));
    slot = &value;
  }
  for (size_t i = 0; i < declared.size(); ++i) {
    if (!values_[i] && !declared[i].optional) {
      fail_template("{}() is missing its argument {}", function, in_quotes(declared[i].name));
    }
  }
}

bool BoundArguments::flag(size_t i, bool otherwise) const { return has(i) ? truthy(*values_[i]) : otherwise; }

Integer BoundArguments::integer(size_t i) const {
  const Value& value = *values_[i];
  require_defined(value);
  if (!value.is_int_like()) {
    fail_template("{}() needs an integer, but '{}' was given", function_, value.type_name());
  }
  return value.as_integer();
}

const std::string& BoundArguments::text(size_t i) const {
  const Value& value = *values_[i];
  if (!value.is_string()) fail_template("{}() needs a string, but '{}' was given", function_, value.type_name());
  return value.str();
}

}  // namespace millrace::jinja
