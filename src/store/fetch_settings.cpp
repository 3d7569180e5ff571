#include "store/fetch_settings.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/environment.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

fs::path folder_variable(const char* name, const fs::path& fallback) {
  return environment_variable(name, fallback.string());
}

void read_hub(FetchSettings& s) {
  const fs::path hf_home =
      folder_variable("HF_HOME", folder_variable("XDG_CACHE_HOME", home_folder() / ".cache") / "huggingface");
  s.hf_cache = folder_variable("HF_HUB_CACHE", hf_home / "hub");
  s.hf_endpoint = environment_variable("HF_ENDPOINT", "https://huggingface.co");
  s.hf_token = environment_variable("HF_TOKEN", first_line(folder_variable("HF_TOKEN_PATH", hf_home / "token")));
  const std::string offline = environment_variable("HF_HUB_OFFLINE");
  s.hf_offline = offline == "1" || offline == "ON" || offline == "YES" || offline == "TRUE" || offline == "true";
}

// In pip's order. PIP_CONFIG_FILE replaces the user's files; /dev/null disables all files.
std::vector<fs::path> pip_config_files() {
  const std::string named = environment_variable("PIP_CONFIG_FILE");
  if (named == "/dev/null") return {};
  std::vector<fs::path> files;
  if (!named.empty()) files.emplace_back(named);
  if (const auto venv = environment_variable("VIRTUAL_ENV"); !venv.empty())
    files.push_back(fs::path(venv) / "pip.conf");
  if (named.empty()) {
    files.push_back(folder_variable("XDG_CONFIG_HOME", home_folder() / ".config") / "pip/pip.conf");
    files.push_back(home_folder() / ".pip/pip.conf");
  }
  files.emplace_back("/etc/pip.conf");
  files.emplace_back("/etc/xdg/pip/pip.conf");
  return files;
}

FetchSettings read() {
  FetchSettings s;
  s.cache = environment().cache;
  read_hub(s);
  s.pypi_index = environment_variable("MILLRACE_PYPI_INDEX", environment_variable("PIP_INDEX_URL"));
  s.pip_cert = environment_variable("PIP_CERT");
  s.pip_proxy = environment_variable("PIP_PROXY");
  s.pip_config_files = pip_config_files();
  const std::string ca_bundle = environment_variable("REQUESTS_CA_BUNDLE", environment_variable("CURL_CA_BUNDLE"));
  s.ca_file = environment_variable("SSL_CERT_FILE", ca_bundle);
  s.ca_folder = environment_variable("SSL_CERT_DIR");
  s.patience_s = std::clamp(std::atoi(environment_variable("MILLRACE_FETCH_PATIENCE", "30").c_str()), 1, 3600);
  return s;
}

}  // namespace

const FetchSettings& fetch_settings() {
  static const FetchSettings value = read();
  return value;
}

}  // namespace millrace
