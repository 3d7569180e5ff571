// The one place where environment variables are read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

struct Environment {
  std::filesystem::path cache;     // MILLRACE_CACHE, else $XDG_CACHE_HOME/millrace, else ~/.cache/millrace
  std::filesystem::path config;    // $XDG_CONFIG_HOME/millrace, else ~/.config/millrace
  std::filesystem::path hf_cache;  // HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub
  std::string hf_endpoint;         // HF_ENDPOINT, else the public hub
  std::string hf_token;            // HF_TOKEN, else the one `hf auth login` left in HF_HOME; never logged
  bool hf_offline = false;         // HF_HUB_OFFLINE: use cached files only
  std::string pypi_index;          // MILLRACE_PYPI_INDEX, PIP_INDEX_URL; empty: from pip's configuration files
  std::string pip_cert;            // PIP_CERT; empty: from pip's configuration files
  std::string pip_proxy;           // PIP_PROXY; empty: from pip's configuration files
  std::vector<std::filesystem::path> pip_config_files;  // where pip looks, strongest first
  std::string ca_file;       // SSL_CERT_FILE, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE; empty: the system's
  std::string ca_folder;     // SSL_CERT_DIR; empty: the system's
  int fetch_patience_s = 0;  // MILLRACE_FETCH_PATIENCE: seconds without a byte until a download counts as stalled; 30
  std::string api_keys;      // MILLRACE_API_KEYS: the server's API keys, separated by newlines or commas; never logged
  bool color = false;        // stdout is a terminal and NO_COLOR is not set
};

// Read once, on first use.
const Environment& environment();

// Options of a verb may come from the environment: --max-queue is MILLRACE_MAX_QUEUE.
std::string setting_variable(const std::string& option);
std::optional<std::string> setting_from_environment(const std::string& option);

}  // namespace millrace
