// The one place where environment variables are read.
#pragma once

#include <filesystem>
#include <string>

namespace millrace {

struct Environment {
  std::filesystem::path cache;   // MILLRACE_CACHE, else $XDG_CACHE_HOME/millrace, else ~/.cache/millrace
  std::filesystem::path config;  // $XDG_CONFIG_HOME/millrace, else ~/.config/millrace
  std::string hf_home;           // HF_HOME; empty: not set
  std::string hf_endpoint;       // HF_ENDPOINT, else the public hub
  std::string hf_token;          // HF_TOKEN; never logged
  std::string pypi_index;        // MILLRACE_PYPI_INDEX, PIP_INDEX_URL, else the public index
  bool color = false;            // stdout is a terminal and NO_COLOR is not set
};

// Read once, on first use.
const Environment& environment();

}  // namespace millrace
