#include "base/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace millrace {
namespace {

std::string variable(const char* name, std::string fallback = "") {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : std::move(fallback);
}

std::filesystem::path user_folder(const char* xdg_name, const char* below_home) {
  if (const auto xdg = variable(xdg_name); !xdg.empty()) return std::filesystem::path(xdg) / "millrace";
  return std::filesystem::path(variable("HOME", "/tmp")) / below_home / "millrace";
}

std::filesystem::path home() { return variable("HOME", "/tmp"); }

std::string first_line(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

void read_hub(Environment& e) {
  const std::filesystem::path user_cache = variable("XDG_CACHE_HOME", (home() / ".cache").string());
  const std::filesystem::path hf_home = variable("HF_HOME", (user_cache / "huggingface").string());
  e.hf_cache = variable("HF_HUB_CACHE", (hf_home / "hub").string());
  e.hf_endpoint = variable("HF_ENDPOINT", "https://huggingface.co");
  e.hf_token = variable("HF_TOKEN", first_line(variable("HF_TOKEN_PATH", (hf_home / "token").string())));
  const std::string offline = variable("HF_HUB_OFFLINE");
  e.hf_offline = offline == "1" || offline == "ON" || offline == "YES" || offline == "TRUE" || offline == "true";
}

// pip's own order: PIP_CONFIG_FILE replaces the user's files; PIP_CONFIG_FILE=/dev/null replaces all files.
std::vector<std::filesystem::path> pip_config_files() {
  const std::string named = variable("PIP_CONFIG_FILE");
  if (named == "/dev/null") return {};
  std::vector<std::filesystem::path> files;
  if (!named.empty()) files.emplace_back(named);
  if (const auto venv = variable("VIRTUAL_ENV"); !venv.empty()) {
    files.push_back(std::filesystem::path(venv) / "pip.conf");
  }
  if (named.empty()) {
    files.push_back(std::filesystem::path(variable("XDG_CONFIG_HOME", (home() / ".config").string())) / "pip/pip.conf");
    files.push_back(home() / ".pip/pip.conf");
  }
  files.emplace_back("/etc/pip.conf");
  files.emplace_back("/etc/xdg/pip/pip.conf");
  return files;
}

void read_pip(Environment& e) {
  e.pypi_index = variable("MILLRACE_PYPI_INDEX", variable("PIP_INDEX_URL"));
  e.pip_cert = variable("PIP_CERT");
  e.pip_proxy = variable("PIP_PROXY");
  e.pip_config_files = pip_config_files();
}

Environment read() {
  Environment e;
  const auto cache = variable("MILLRACE_CACHE");
  e.cache = cache.empty() ? user_folder("XDG_CACHE_HOME", ".cache") : std::filesystem::path(cache);
  e.config = user_folder("XDG_CONFIG_HOME", ".config");
  read_hub(e);
  read_pip(e);
  e.ca_file = variable("SSL_CERT_FILE", variable("REQUESTS_CA_BUNDLE", variable("CURL_CA_BUNDLE")));
  e.ca_folder = variable("SSL_CERT_DIR");
  e.fetch_patience_s = std::clamp(std::atoi(variable("MILLRACE_FETCH_PATIENCE", "30").c_str()), 1, 3600);
  e.api_keys = variable("MILLRACE_API_KEYS");
  e.color = isatty(STDOUT_FILENO) != 0 && variable("NO_COLOR").empty();
  return e;
}

}  // namespace

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
  std::string value = variable(setting_variable(option).c_str());
  return value.empty() ? std::nullopt : std::optional(std::move(value));
}

}  // namespace millrace
