#include "store/safe_path.h"

namespace millrace {
namespace {

bool is_safe_component(std::string_view name) {
  // The store reserves hidden names (.lock); "." and ".." leave the folder.
  if (name.empty() || name.size() > 200 || name.front() == '.') return false;
  for (const unsigned char c : name) {
    if (c < 0x20 || c == 0x7f || c == '\\' || c == ':') return false;
  }
  return true;
}

}  // namespace

bool is_safe_relative_path(std::string_view path) {
  if (path.size() > 1000) return false;
  for (;;) {
    const auto slash = path.find('/');
    if (!is_safe_component(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace millrace
