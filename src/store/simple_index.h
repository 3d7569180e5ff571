// The page of a Python package index that lists one project's files: HTML (PEP 503) or JSON (PEP 691).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct IndexedFile {
  std::string url;     // as in the page: may be relative to it
  std::string sha256;  // empty if the page states none
};

std::optional<IndexedFile> find_in_html_index(std::string_view page, std::string_view filename);
std::optional<IndexedFile> find_in_json_index(std::string_view page, std::string_view filename);

}  // namespace millrace
