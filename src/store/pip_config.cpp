#include "store/pip_config.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/ascii.h"
#include "store/read_file.h"

namespace millrace {
namespace {

constexpr const char* kPublicIndex = "https://pypi.org/simple";

std::string normal_key(std::string_view key) {
  std::string normal = ascii_lower(ascii_trim(key));
  std::replace(normal.begin(), normal.end(), '_', '-');
  return normal;
}

}  // namespace

std::map<std::string, std::string> parse_pip_config(std::string_view text) {
  std::map<std::string, std::string> values;
  bool in_global = false;
  std::string last_key;
  while (!text.empty()) {
    const auto newline = std::min(text.find('\n'), text.size());
    const std::string_view raw = text.substr(0, newline), line = ascii_trim(raw);
    text.remove_prefix(std::min(newline + 1, text.size()));
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (raw.front() == ' ' || raw.front() == '\t') {  // continues the value of the previous line
      if (in_global && !last_key.empty() && values[last_key].empty()) values[last_key] = line;
    } else if (line.front() == '[') {
      in_global = line == "[global]";
      last_key.clear();
    } else if (const auto sign = line.find_first_of("=:"); in_global && sign != std::string_view::npos) {
      last_key = normal_key(line.substr(0, sign));
      values[last_key] = ascii_trim(line.substr(sign + 1));
    }
  }
  return values;
}

PipSettings pip_settings(const FetchSettings& settings) {
  PipSettings pip{settings.pypi_index, settings.pip_cert, settings.pip_proxy};
  for (const auto& file : settings.pip_config_files) {
    const auto values = parse_pip_config(read_file(file));
    const auto fill = [&](std::string& setting, const char* key) {
      if (const auto found = values.find(key); setting.empty() && found != values.end()) setting = found->second;
    };
    fill(pip.index_url, "index-url");
    fill(pip.cert, "cert");
    fill(pip.proxy, "proxy");
  }
  if (pip.index_url.empty()) pip.index_url = kPublicIndex;
  return pip;
}

}  // namespace millrace
