#include "store/hub_id.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/error.h"
#include "store/safe_path.h"

namespace millrace {
namespace {

// The hub's rule for names of owners and repositories.
bool is_hub_name(std::string_view name) {
  if (name.empty() || name.size() > 96 || name.find("..") != name.npos || name.find("--") != name.npos) return false;
  const auto is_punctuation = [](char c) { return c == '-' || c == '_' || c == '.'; };
  if (name.front() == '.' || name.front() == '-' || name.back() == '.' || name.back() == '-') return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return is_ascii_alnum(c) || is_punctuation(c); });
}

}  // namespace

std::optional<HubId> parse_hub_id(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view repository = text.substr(0, colon);
  const auto slash = repository.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  HubId id{std::string(repository.substr(0, slash)), std::string(repository.substr(slash + 1)), ""};
  if (!is_hub_name(id.owner) || !is_hub_name(id.name)) return std::nullopt;
  if (colon == std::string_view::npos) {
    // Repository names rarely end in .gguf; a mistyped path often does.
    return id.name.ends_with(".gguf") ? std::nullopt : std::optional(id);
  }
  id.choice = text.substr(colon + 1);
  if (!is_safe_relative_path(id.choice)) {
    fail(ErrorKind::Usage, "{}: '{}' is no file of a repository", text, id.choice);
  }
  return id;
}

}  // namespace millrace
