#include "text/jinja/builtin/globals.h"

#include "text/jinja/arguments.h"
#include "text/jinja/builtin/methods.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/objects.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/strftime.h"

namespace millrace::jinja {
namespace {

Value make_range(Interpreter&, const Arguments& arguments) {
  const BoundArguments args(arguments, "range", {"start", "stop?", "step?", "/"});
  const bool one = !args.has(1);
  return Value::object(
      std::make_shared<Range>(one ? Integer(0) : args.integer(0), args.integer(one ? 0 : 1), args.integer(2, 1)));
}

// dict(mapping or pairs, name=value, ...)
std::shared_ptr<Dict> make_dict(const Arguments& arguments) {
  auto dict = std::make_shared<Dict>();
  if (arguments.positional.size() > 1) fail_template("dict expected at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    require_defined(source);
    if (source.is_dict()) {
      for (const auto& [key, value] : source.as_dict().entries()) dict->set(key, value);
    } else {
      const IteratorPtr pairs = iterate(source);
      while (const std::optional<Value> pair = pairs->next()) {
        const std::vector<Value> items = to_vector(*pair);
        if (items.size() != 2) fail_template("dict update sequence element has length {}; 2 is required", items.size());
        dict->set(items[0], items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict->set(Value::string(name), value);
  return dict;
}

class DictFactory : public Object {
 public:
  std::string_view type_name() const override { return "TemplateDict"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, const Arguments& arguments) override { return Value::dict(make_dict(arguments)); }
  std::optional<Value> attribute(std::string_view name) override {
    if (name != "fromkeys") return std::nullopt;
    return make_function(name, 1, [](Interpreter& interpreter, const Arguments& arguments) {
      return find_dict_method("fromkeys")(interpreter, Value(), arguments);
    });
  }
};

Value make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  auto result = std::make_shared<Namespace>();
  interpreter.keep(result);
  const std::shared_ptr<Dict> attributes = make_dict(arguments);
  for (const auto& [key, value] : attributes->entries()) {
    if (!key.is_string()) fail_template("the attributes of a namespace need names");
    result->set(key.str(), value);
  }
  return Value::object(result);
}

Value make_joiner(Interpreter&, const Arguments& arguments) {
  const BoundArguments args(arguments, "joiner", {"sep?"});
  return Value::object(std::make_shared<Joiner>(args.has(0) ? args[0] : Value::string(", ")));
}

Value raise_exception(Interpreter& interpreter, const Arguments& arguments) {
  const BoundArguments args(arguments, "raise_exception", {"message"});
  throw TemplateError(to_text(args[0]), interpreter.line(), TemplateError::Origin::Raised);
}

Value strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  const BoundArguments args(arguments, "strftime_now", {"format"});
  return Value::string(format_local_time(args.text(0), interpreter.now()));
}

}  // namespace

std::optional<Value> find_global(std::string_view name) {
  using Body = Value (*)(Interpreter&, const Arguments&);
  static constexpr std::pair<std::string_view, Body> kFunctions[] = {
      {"joiner", make_joiner}, {"namespace", make_namespace},  {"raise_exception", raise_exception},
      {"range", make_range},   {"strftime_now", strftime_now},
  };
  if (name == "dict") return Value::object(std::make_shared<DictFactory>());
  for (const auto& [known, body] : kFunctions) {
    if (known == name) return make_function(name, 1, body);
  }
  return std::nullopt;
}

}  // namespace millrace::jinja
