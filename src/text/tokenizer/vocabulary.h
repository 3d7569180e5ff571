// Tokens and their ids. The texts lie in one buffer, so that a quarter of a million of them load quickly.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  // The last id given to a text, and the last text given to an id, are the ones found. Throws BadFile for ids that no
  // vocabulary reaches.
  void add(std::string_view text, int64_t id);

  int32_t find(std::string_view text) const;                                  // kNone: no such token
  std::string_view text(int32_t id) const;                                    // empty: no such id
  int32_t size() const { return static_cast<int32_t>(entry_of_id_.size()); }  // the largest id and one
  size_t count() const { return entries_.size(); }                            // different texts
  size_t longest() const { return longest_; }                                 // bytes of the longest text

  // The id of "<0xNN>", by which SentencePiece writes a byte that is in no token.
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
  std::vector<uint32_t> slots_;        // index of an entry plus one; 0: free
  std::vector<uint32_t> entry_of_id_;  // the same
  size_t longest_ = 0;
};

}  // namespace millrace
