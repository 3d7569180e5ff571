#include "server/requests/custom_tools.h"

#include "server/requests/api_error.h"

namespace millrace {

Schema custom_format_schema(bool nested) {
  std::vector<Schema::Property> rules{{"syntax", Schema::word({"lark", "regex"}), true},
                                      {"definition", Schema::string(1), true}};
  const auto text = Schema::object({{"type", Schema::word({"text"}), true}});
  const Schema::Property type{"type", Schema::word({"grammar"}), true};
  if (nested) return Schema::any_of({text, Schema::object({type, {"grammar", Schema::object(rules), true}})});
  rules.insert(rules.begin(), type);
  return Schema::any_of({text, Schema::object(rules)});
}

Json function_of_custom(const Json& custom, const std::string& param) {
  Json input{{"type", "string"}};
  const Json format = custom.value("format", Json());
  if (format.is_object() && format["type"] == "grammar") {
    const Json& grammar = format.contains("grammar") ? format["grammar"] : format;
    if (grammar["syntax"] == "lark") {
      fail_field(param + ".format", "unsupported_value", "grammars in Lark's syntax are not supported; use 'regex'");
    }
    input["pattern"] = "^(?:" + grammar["definition"].get<std::string>() + ")$";
  }
  Json function{{"name", custom["name"]}};
  if (custom.contains("description") && custom["description"].is_string())
    function["description"] = custom["description"];
  function["parameters"] = {{"type", "object"},
                            {"properties", {{"input", std::move(input)}}},
                            {"required", Json::array({"input"})},
                            {"additionalProperties", false}};
  function["strict"] = true;
  return function;
}

std::string custom_arguments(const Json& input) { return to_text(Json{{"input", input}}); }

std::string custom_input(const std::string& arguments) {
  const std::string whole_characters = arguments.substr(0, arguments.rfind('\\'));  // without a cut escape sequence
  for (const std::string& text : {arguments, arguments + "\"}", whole_characters + "\"}"}) {
    const Json parsed = Json::parse(text, nullptr, false);
    if (parsed.is_object() && parsed.contains("input") && parsed["input"].is_string()) return parsed["input"];
  }
  return "";
}

}  // namespace millrace
