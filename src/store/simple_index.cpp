#include "store/simple_index.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/percent.h"
#include "store/sha256.h"

namespace millrace {
namespace {

// Decodes only the escapes that URLs in attributes need.
std::string unescape_html(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    if (text.starts_with("&amp;") || text.starts_with("&#38;")) {
      plain += '&';
      text.remove_prefix(5);
    } else {
      plain += text.front();
      text.remove_prefix(1);
    }
  }
  return plain;
}

// Consumes `name`, `name=value`, `name='value'` or `name="value"` from the front of a tag's inside.
bool take_attribute(std::string_view& tag, std::string_view& name, std::string_view& value) {
  while (!tag.empty() && (is_ascii_space(tag.front()) || tag.front() == '/')) tag.remove_prefix(1);
  if (tag.empty()) return false;
  size_t end = 1;
  while (end < tag.size() && !is_ascii_space(tag[end]) && tag[end] != '=') ++end;
  name = tag.substr(0, end);
  value = {};
  tag.remove_prefix(end);
  if (tag.empty() || tag.front() != '=') return true;
  tag.remove_prefix(1);
  if (!tag.empty() && (tag.front() == '"' || tag.front() == '\'')) {
    const size_t close = std::min(tag.find(tag.front(), 1), tag.size());
    value = tag.substr(1, close - 1);
    tag.remove_prefix(std::min(close + 1, tag.size()));
  } else {
    size_t stop = 0;
    while (stop < tag.size() && !is_ascii_space(tag[stop])) ++stop;
    value = tag.substr(0, stop);
    tag.remove_prefix(stop);
  }
  return true;
}

// Returns the end of the tag that begins at `from`. Quoted values may contain '>'; an apostrophe outside of values is
// no quote.
size_t end_of_tag(std::string_view page, size_t from) {
  char quote = 0;
  for (size_t i = from; i < page.size(); ++i) {  // page[from - 1] is the '<'
    if (quote != 0) {
      if (page[i] == quote) quote = 0;
    } else if ((page[i] == '"' || page[i] == '\'') && page[i - 1] == '=') {
      quote = page[i];
    } else if (page[i] == '>') {
      return i;
    }
  }
  return page.size();
}

std::string href_of(std::string_view tag) {
  std::string_view name, value;
  while (take_attribute(tag, name, value)) {
    if (equal_ignoring_case(name, "href")) return unescape_html(value);
  }
  return "";
}

// The last component of the URL's path, decoded.
std::string file_of(std::string_view url) {
  url = url.substr(0, url.find_first_of("?#"));
  const auto slash = url.rfind('/');
  return percent_decode(slash == std::string_view::npos ? url : url.substr(slash + 1));
}

}  // namespace

std::optional<IndexedFile> find_in_html_index(std::string_view page, std::string_view filename) {
  for (size_t at = page.find('<'); at != std::string_view::npos; at = page.find('<', at)) {
    const size_t end = end_of_tag(page, ++at);
    const std::string_view tag = page.substr(at, end - at);
    at = end;
    if (tag.size() < 2 || ascii_lower(tag[0]) != 'a' || !is_ascii_space(tag[1])) continue;
    const std::string href = href_of(tag.substr(1));
    if (!equal_ignoring_case(file_of(href), filename)) continue;
    const auto fragment = href.find('#');
    const std::string url = href.substr(0, fragment);
    const std::string_view hash = fragment == std::string::npos ? "" : std::string_view(href).substr(fragment + 1);
    return IndexedFile{url, hash.starts_with("sha256=") ? parse_sha256(hash.substr(7)) : ""};
  }
  return std::nullopt;
}

std::optional<IndexedFile> find_in_json_index(std::string_view page, std::string_view filename) {
  const auto json = read_json(page);
  if (!json.is_object() || !json.contains("files") || !json["files"].is_array()) {
    fail(ErrorKind::Network, "the package index answered with JSON that is no list of files");
  }
  const auto text = [](const nlohmann::json& object, const char* key) -> std::string {
    return object.is_object() && object.contains(key) && object[key].is_string() ? object[key] : "";
  };
  for (const auto& file : json["files"]) {
    if (!equal_ignoring_case(text(file, "filename"), filename)) continue;
    return IndexedFile{text(file, "url"), file.contains("hashes") ? parse_sha256(text(file["hashes"], "sha256")) : ""};
  }
  return std::nullopt;
}

}  // namespace millrace
