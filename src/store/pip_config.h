// pip's settings, which users behind a mirror have made: which package index, which certificates, which proxy.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/environment.h"

namespace millrace {

struct PipSettings {
  std::string index_url;  // never empty
  std::string cert;       // empty: the system's
  std::string proxy;      // empty: the usual proxy variables decide
};

// From the environment, else pip's configuration files, else the public index.
PipSettings pip_settings(const Environment& environment);

// The keys of section [global] of a pip.conf, lower-case, with '-' for '_'; the first line of each value.
std::map<std::string, std::string> parse_pip_config(std::string_view text);

}  // namespace millrace
