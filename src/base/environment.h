// The only file that reads environment variables.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace millrace {

struct Environment {
  std::filesystem::path cache;  // MILLRACE_CACHE, else $XDG_CACHE_HOME/millrace, else ~/.cache/millrace
  std::string api_keys;         // MILLRACE_API_KEYS: keys of the server, separated by newlines or commas; never logged
  bool color = false;           // stdout is a terminal that is not dumb, and NO_COLOR is not set
};

// Reads the variables on the first call.
const Environment& environment();

// Rooms with variables of their own (store/) read them with this. An empty variable counts as unset.
std::string environment_variable(const char* name, std::string fallback = "");

// The user's home folder, or /tmp.
std::filesystem::path home_folder();

// Each option of a verb has a variable: --max-queue is MILLRACE_MAX_QUEUE.
std::string setting_variable(const std::string& option);
std::optional<std::string> setting_from_environment(const std::string& option);

}  // namespace millrace
