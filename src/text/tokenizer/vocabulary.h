// Maps tokens to ids and back. All texts share one buffer, so that 250,000 tokens load quickly.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  // The last id of a text and the last text of an id win. Throws BadFile for implausibly large ids.
  void add(std::string_view text, int64_t id);

  int32_t find(std::string_view text) const;                                  // kNone if missing
  std::string_view text(int32_t id) const;                                    // empty if missing
  int32_t size() const { return static_cast<int32_t>(entry_of_id_.size()); }  // largest id + 1
  size_t count() const { return entries_.size(); }                            // number of distinct texts
  size_t longest() const { return longest_; }                                 // bytes of the longest text

  // The id of "<0xNN>", SentencePiece's token for a single byte.
  int32_t byte_token(unsigned char byte) const;

 private:
  struct Entry {
    uint32_t offset, length;
    int32_t id;
  };

  std::string_view text_of(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.offset, entry.length);
  }
  size_t find_slot(std::string_view text) const;
  void grow();

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;        // index of an entry + 1; 0: free
  std::vector<uint32_t> entry_of_id_;  // by id: index of an entry + 1; 0: none
  size_t longest_ = 0;
};

}  // namespace millrace
