// Files with the state of parked sessions. A file belongs to one model and one layout of its state; files of others lie
// in other folders and are left alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/saved_prefix.h"

namespace millrace {

class ParkFolder {
 public:
  // `mark` tells models and layouts apart and becomes the name of a folder below `folder`. Throws Io if the folder
  // cannot be made or written.
  ParkFolder(const std::filesystem::path& folder, const std::string& mark);

  struct File {
    std::filesystem::path path;
    bool long_rope = false;
    std::vector<int32_t> tokens, stops;  // as in SavedPrefix
    int64_t bytes = 0;
    double age = 0;  // seconds since it was written
  };
  std::vector<File> find() const;  // the oldest first; removes damaged and half-written files

  File write(bool long_rope, const std::vector<int32_t>& tokens, const SavedPrefix& saved);  // throws Io
  std::optional<SavedPrefix> read(const File& file) const;  // nullopt: missing or damaged, which a line in the log says
  static void remove(const File& file);

 private:
  std::filesystem::path folder_;
  uint64_t written_ = 0;
};

}  // namespace millrace
