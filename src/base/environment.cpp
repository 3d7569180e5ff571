#include "base/environment.h"

#include <unistd.h>

#include <cstdlib>

namespace millrace {
namespace {

std::filesystem::path cache_folder() {
  if (const auto own = environment_variable("MILLRACE_CACHE"); !own.empty()) return own;
  const std::filesystem::path caches = environment_variable("XDG_CACHE_HOME", (home_folder() / ".cache").string());
  return caches / "millrace";
}

Environment read() {
  Environment e;
  e.cache = cache_folder();
  e.api_keys = environment_variable("MILLRACE_API_KEYS");
  const bool dumb = environment_variable("TERM", "dumb") == "dumb";
  e.color = isatty(STDOUT_FILENO) != 0 && !dumb && environment_variable("NO_COLOR").empty();
  return e;
}

}  // namespace

std::string environment_variable(const char* name, std::string fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : std::move(fallback);
}

std::filesystem::path home_folder() { return environment_variable("HOME", "/tmp"); }

const Environment& environment() {
  static const Environment value = read();
  return value;
}

std::string setting_variable(const std::string& option) {
  std::string name = "MILLRACE_";
  for (const char c : option) name += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return name;
}

std::optional<std::string> setting_from_environment(const std::string& option) {
  std::string value = environment_variable(setting_variable(option).c_str());
  return value.empty() ? std::nullopt : std::optional(std::move(value));
}

}  // namespace millrace
