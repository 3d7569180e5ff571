// Settings for finding and fetching models, read from the environment variables of millrace, the Hugging Face hub, pip
// and TLS libraries.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace millrace {

// Receives the state of a download, often; total is 0 if it is unknown.
using FetchProgress = std::function<void(uint64_t done, uint64_t total)>;

struct FetchSettings {
  std::filesystem::path cache;     // base/environment.h: the folder of everything millrace keeps
  std::filesystem::path hf_cache;  // HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub
  std::string hf_endpoint;         // HF_ENDPOINT, else the public hub
  std::string hf_token;            // HF_TOKEN, else the token that `hf auth login` left in HF_HOME; never logged
  bool hf_offline = false;         // HF_HUB_OFFLINE: use cached files only
  std::string pypi_index;          // MILLRACE_PYPI_INDEX, PIP_INDEX_URL; empty: pip's configuration files decide
  std::string pip_cert;            // PIP_CERT; empty: pip's configuration files decide
  std::string pip_proxy;           // PIP_PROXY; empty: pip's configuration files decide
  std::vector<std::filesystem::path> pip_config_files;  // pip's search path, highest precedence first
  std::string ca_file;    // SSL_CERT_FILE, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE; empty: the system's
  std::string ca_folder;  // SSL_CERT_DIR; empty: the system's
  int patience_s = 0;  // MILLRACE_FETCH_PATIENCE: seconds without a byte until a download counts as stalled; default 30
  FetchProgress progress;  // empty: a progress bar on stderr
};

// Reads the variables on the first call.
const FetchSettings& fetch_settings();

}  // namespace millrace
