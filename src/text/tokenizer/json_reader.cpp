#include "text/tokenizer/json_reader.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr size_t kDeepestValue = 100;

// Builds a tree from the parser's events.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit TreeBuilder(const char* name) : name_(name) {}

  bool null() override { return value(nullptr); }
  bool boolean(bool b) override { return value(b); }
  bool number_integer(number_integer_t n) override { return value(n); }
  bool number_unsigned(number_unsigned_t n) override { return value(n); }
  bool number_float(number_float_t n, const string_t&) override { return value(n); }
  bool string(string_t& text) override { return value(std::move(text)); }
  bool binary(binary_t&) override { return true; }
  bool key(string_t& text) override {
    key_ = std::move(text);
    return true;
  }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(ErrorKind::BadFile, "{}: not JSON from byte {} on", name_, position);
  }

  Json take() { return std::move(root_); }

 protected:
  size_t depth() const { return open_.size(); }
  const std::string& last_key() const { return key_; }

  bool value(Json v) {
    add(std::move(v));
    return true;
  }

  [[noreturn]] void broken(const char* what) const { fail(ErrorKind::BadFile, "{}: {}", name_, what); }

 private:
  Json& add(Json v) {
    if (open_.empty()) return root_ = std::move(v);
    Json& parent = *open_.back();
    if (parent.is_object()) return parent[key_] = std::move(v);
    parent.push_back(std::move(v));
    return parent.back();
  }

  bool open(Json v) {
    if (open_.size() == kDeepestValue) broken("nested too deeply");
    open_.push_back(&add(std::move(v)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const char* name_;
  Json root_;
  std::vector<Json*> open_;  // enclosing containers; only the innermost grows, so the pointers stay valid
  std::string key_;
};

// Diverts model.vocab and model.merges from the tree.
class TokenizerReader : public TreeBuilder {
 public:
  TokenizerReader() : TreeBuilder("tokenizer.json") {}

  TokenizerJson finish() {
    result_.tree = take();
    return std::move(result_);
  }

  bool null() override { return inside_ != Inside::Tree ? misplaced() : TreeBuilder::null(); }
  bool boolean(bool b) override { return inside_ != Inside::Tree ? misplaced() : TreeBuilder::boolean(b); }
  bool number_integer(number_integer_t n) override {
    return inside_ != Inside::Tree ? number(n, static_cast<double>(n)) : TreeBuilder::number_integer(n);
  }
  bool number_unsigned(number_unsigned_t n) override {
    const auto id = n > static_cast<number_unsigned_t>(INT64_MAX) ? INT64_MAX : static_cast<int64_t>(n);
    return inside_ != Inside::Tree ? number(id, static_cast<double>(n)) : TreeBuilder::number_unsigned(n);
  }
  bool number_float(number_float_t n, const string_t& text) override {
    return inside_ != Inside::Tree ? number(-1, n) : TreeBuilder::number_float(n, text);
  }

  bool string(string_t& text) override {
    if (inside_ == Inside::Tree) return TreeBuilder::string(text);
    if (inside_ == Inside::VocabEntry && items_ == 0) {
      token_ = std::move(text);
    } else if (inside_ == Inside::Merges) {
      add_merge(text);
      return true;
    } else if (inside_ == Inside::MergePair && items_ < 2) {
      (items_ == 0 ? token_ : right_) = std::move(text);
    } else {
      misplaced();
    }
    ++items_;
    return true;
  }

  bool key(string_t& text) override {
    if (inside_ == Inside::Tree) {
      if (depth() == 1) in_model_ = text == "model";
      return TreeBuilder::key(text);
    }
    token_ = std::move(text);
    return true;
  }

  bool start_object(size_t size) override {
    if (inside_ != Inside::Tree) return misplaced();
    if (!at("vocab")) return TreeBuilder::start_object(size);
    inside_ = Inside::VocabObject;
    return true;
  }

  bool start_array(size_t size) override {
    items_ = 0;
    if (inside_ == Inside::VocabList) return inside_ = Inside::VocabEntry, true;
    if (inside_ == Inside::Merges) return inside_ = Inside::MergePair, true;
    if (inside_ != Inside::Tree) return misplaced();
    if (at("vocab")) return inside_ = Inside::VocabList, true;
    if (at("merges")) return result_.has_merges = true, inside_ = Inside::Merges, true;
    return TreeBuilder::start_array(size);
  }

  bool end_object() override {
    if (inside_ == Inside::Tree) return TreeBuilder::end_object();
    inside_ = Inside::Tree;
    return true;
  }

  bool end_array() override {
    switch (inside_) {
      case Inside::VocabEntry:
        if (items_ != 2) misplaced();
        inside_ = Inside::VocabList;
        return true;
      case Inside::MergePair:
        if (items_ != 2) misplaced();
        push_merge(token_, right_);
        inside_ = Inside::Merges;
        return true;
      case Inside::VocabList:
      case Inside::Merges:
        inside_ = Inside::Tree;
        return true;
      default:
        return TreeBuilder::end_array();
    }
  }

 private:
  enum class Inside { Tree, VocabObject, VocabList, VocabEntry, Merges, MergePair };

  bool at(const char* name) const { return in_model_ && depth() == 2 && last_key() == name; }

  [[noreturn]] bool misplaced() const { broken("its vocabulary or its merges are not of a known form"); }

  bool number(int64_t id, double score) {
    if (inside_ == Inside::VocabObject) {
      result_.vocabulary->add(token_, id);
    } else if (inside_ == Inside::VocabEntry && items_ == 1) {
      result_.vocabulary->add(token_, static_cast<int64_t>(result_.scores.size()));
      result_.scores.push_back(score);
      ++items_;
    } else {
      misplaced();
    }
    return true;
  }

  void add_merge(std::string_view text) {
    if (text.starts_with("#version")) return;
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      broken("a merge is not two tokens");
    }
    push_merge(text.substr(0, space), text.substr(space + 1));
  }

  void push_merge(std::string_view left, std::string_view right) {
    result_.merge_bytes += left;
    result_.merge_bytes += right;
    result_.merges.push_back({static_cast<uint32_t>(left.size()), static_cast<uint32_t>(right.size())});
  }

  TokenizerJson result_;
  Inside inside_ = Inside::Tree;
  bool in_model_ = false;
  std::string token_, right_;
  int items_ = 0;  // number of items in the innermost list
};

void parse(std::string_view text, TreeBuilder& builder) { Json::sax_parse(text.begin(), text.end(), &builder); }

}  // namespace

TokenizerJson read_tokenizer_json(std::string_view text) {
  TokenizerReader reader;
  parse(text, reader);
  TokenizerJson result = reader.finish();
  if (!result.tree.is_object()) fail(ErrorKind::BadFile, "tokenizer.json: not an object");
  return result;
}

Json read_json(std::string_view text, const char* name) {
  TreeBuilder builder(name);
  parse(text, builder);
  return builder.take();
}

}  // namespace millrace
