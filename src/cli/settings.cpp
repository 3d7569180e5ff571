#include "cli/settings.h"

#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "base/json_text.h"
#include "cli/read_text.h"

namespace millrace {
namespace {

std::string long_name(const CLI::Option& option) {
  const auto& names = option.get_lnames();
  return names.empty() ? "" : names.back();
}

std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

nlohmann::json read_config(const std::string& path) {
  auto json = read_json_with_comments(read_file_or_stdin(path));
  if (!json.is_object()) fail(ErrorKind::Usage, "{}: is not a JSON object", path);
  return json;
}

void set(CLI::Option& option, const std::vector<std::string>& values, const std::string& origin) {
  try {
    for (const auto& value : values) option.add_result(value);
    option.run_callback();
  } catch (const CLI::Error& e) {
    fail(ErrorKind::Usage, "{}: {}", origin, e.what());
  }
}

void apply_environment(CLI::App& verb) {
  for (CLI::Option* option : verb.get_options()) {
    const std::string name = long_name(*option);
    if (option->count() > 0 || name.empty() || name == "help" || name == "config") continue;
    const std::string variable = setting_variable(name);
    if (const auto value = setting_from_environment(name)) set(*option, {*value}, variable);
  }
}

void apply_file(CLI::App& verb, const std::string& path) {
  const nlohmann::json config = read_config(path);
  for (const auto& [name, value] : config.items()) {
    CLI::Option* option = verb.get_option_no_throw("--" + name);
    const std::string origin = path + ": " + name;
    if (option == nullptr || name == "help" || name == "config")
      fail(ErrorKind::Usage, "{}: there is no such option", origin);
    if (option->count() > 0) continue;
    std::vector<std::string> values;
    if (value.is_array()) {
      for (const auto& one : value) values.push_back(text_of(one));
    } else if (value.is_object() || value.is_null()) {
      fail(ErrorKind::Usage, "{}: expected a text, a number, true, false, or a list", origin);
    } else {
      values.push_back(text_of(value));
    }
    set(*option, values, origin);
  }
}

}  // namespace

void apply_settings(CLI::App& verb, const std::string& config) {
  apply_environment(verb);
  if (!config.empty()) apply_file(verb, config);
}

}  // namespace millrace
