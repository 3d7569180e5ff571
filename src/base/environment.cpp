#include "base/environment.h"

#include <unistd.h>

#include <cstdlib>

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

Environment read() {
  Environment e;
  const auto cache = variable("MILLRACE_CACHE");
  e.cache = cache.empty() ? user_folder("XDG_CACHE_HOME", ".cache") : std::filesystem::path(cache);
  e.config = user_folder("XDG_CONFIG_HOME", ".config");
  e.hf_home = variable("HF_HOME");
  e.hf_endpoint = variable("HF_ENDPOINT", "https://huggingface.co");
  e.hf_token = variable("HF_TOKEN");
  e.pypi_index = variable("MILLRACE_PYPI_INDEX", variable("PIP_INDEX_URL", "https://pypi.org/simple"));
  e.color = isatty(STDOUT_FILENO) != 0 && variable("NO_COLOR").empty();
  return e;
}

}  // namespace

const Environment& environment() {
  static const Environment value = read();
  return value;
}

}  // namespace millrace
