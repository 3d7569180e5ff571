#include "grammar/distinct_names.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// Follows JSON text byte by byte and notes the names of the open objects.
class NameTracker {
 public:
  // False: the byte completes a name that its object has already.
  bool take(char byte) {
    if (in_string_) return take_string(byte);
    switch (byte) {
      case '"':
        in_string_ = true;
        in_name_ = expects_name_;
        name_.clear();
        break;
      case '{':
      case '[':
        open_.push_back({byte == '{', {}});
        expects_name_ = byte == '{';
        break;
      case '}':
      case ']':
        if (!open_.empty()) open_.pop_back();
        expects_name_ = false;
        break;
      case ',':
        expects_name_ = !open_.empty() && open_.back().is_object;
        break;
      default:
        break;
    }
    return true;
  }
  bool take(std::string_view text) {
    bool good = true;
    for (const char byte : text) good = take(byte) && good;
    return good;
  }

  // Calls back with each name of the innermost object that begins with the name being written, and its rest.
  template <class Visit>
  void for_rests(Visit visit) const {
    if (!in_name_ || escaped_ || open_.empty()) return;
    for (const std::string& name : open_.back().names) {
      if (name.starts_with(name_)) visit(std::string_view(name).substr(name_.size()));
    }
  }
  template <class Visit>
  void for_names(Visit visit) const {
    for (const Open& one : open_) {
      for (const std::string& name : one.names) visit(name);
    }
  }

 private:
  struct Open {
    bool is_object;
    std::vector<std::string> names;  // as written, with escapes
  };

  bool take_string(char byte) {
    if (byte != '"' || escaped_) {
      escaped_ = byte == '\\' && !escaped_;
      if (in_name_) name_ += byte;
      return true;
    }
    in_string_ = false;
    if (!std::exchange(in_name_, false)) return true;
    expects_name_ = false;
    std::vector<std::string>& names = open_.back().names;
    if (std::find(names.begin(), names.end(), name_) != names.end()) return false;
    names.push_back(name_);
    return true;
  }

  std::vector<Open> open_;
  std::string name_;
  bool in_string_ = false, in_name_ = false, escaped_ = false, expects_name_ = false;
};

class DistinctNames : public TextConstraint {
 public:
  DistinctNames(std::unique_ptr<TextConstraint> grammar, std::shared_ptr<const TokenVocabulary> vocabulary)
      : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)) {}

  bool fill_mask(std::span<uint32_t> words) override {
    if (!grammar_->fill_mask(words)) return false;
    removed_.clear();
    tracker_.for_rests([&](std::string_view rest) {
      for (const TokenTrie::Token& token : vocabulary_->starting_with(std::string(rest) + '"')) remove(token.id, words);
    });
    tracker_.for_names([&](const std::string& name) {
      for (const int32_t token : vocabulary_->quoting(name)) {
        NameTracker ahead = tracker_;
        if (!ahead.take(vocabulary_->bytes(token))) remove(token, words);
      }
    });
    if (removed_.empty()) return true;
    for (const auto& [twin, token] : vocabulary_->twins()) {
      if (std::find(removed_.begin(), removed_.end(), token) != removed_.end()) remove(twin, words);
    }
    if (std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; })) {
      for (const int32_t token : removed_) words[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    }
    return true;
  }

  void accept(int32_t token) override {
    grammar_->accept(token);
    tracker_.take(vocabulary_->bytes(token));
  }
  bool allows(std::string_view text) override { return grammar_->allows(text) && NameTracker(tracker_).take(text); }
  void accept_text(std::string_view text) override {
    grammar_->accept_text(text);
    tracker_.take(text);
  }

  void mark() override {
    grammar_->mark();
    marked_ = tracker_;
  }
  void roll_back() override {
    grammar_->roll_back();
    tracker_ = marked_;
  }
  bool terminated() const override { return grammar_->terminated(); }
  bool failed() const override { return grammar_->failed(); }

 private:
  void remove(int32_t token, std::span<uint32_t> words) {
    uint32_t& word = words[static_cast<size_t>(token) / 32];
    const uint32_t bit = 1u << (token % 32);
    if ((word & bit) == 0) return;
    word &= ~bit;
    removed_.push_back(token);
  }

  std::unique_ptr<TextConstraint> grammar_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  NameTracker tracker_, marked_;
  std::vector<int32_t> removed_;  // by the last fill_mask()
};

}  // namespace

std::unique_ptr<TextConstraint> make_distinct_names(std::unique_ptr<TextConstraint> grammar,
                                                    std::shared_ptr<const TokenVocabulary> vocabulary) {
  return std::make_unique<DistinctNames>(std::move(grammar), std::move(vocabulary));
}

}  // namespace millrace
