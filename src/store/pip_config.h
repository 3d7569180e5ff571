// pip's package index, certificates and proxy. Users behind a mirror have configured them already.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "store/fetch_settings.h"

namespace millrace {

struct PipSettings {
  std::string index_url;  // never empty
  std::string cert;       // empty: the system's certificates
  std::string proxy;      // empty: libcurl reads the usual proxy variables
};

// In order of precedence: the environment, pip's configuration files, the public index.
PipSettings pip_settings(const FetchSettings& settings);

// The section [global] of a pip.conf: keys in lower case with '-' for '_', and the first line of each value.
std::map<std::string, std::string> parse_pip_config(std::string_view text);

}  // namespace millrace
