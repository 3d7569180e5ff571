#include "text/tokenizer/decoder.h"

#include <charconv>
#include <optional>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/decode_stages.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

template <class Stage, class... Args>
auto opener(Args... args) {
  return [args...]() -> std::unique_ptr<DecodeStage> { return std::make_unique<Stage>(args...); };
}

// Joins the bytes of all tokens and emits complete characters.
class ByteLevelStage : public JoiningStage {
 public:
  void chunk(std::string_view text, bool, bool ends) override {
    token_ += text;
    if (ends) push_token();
  }

  void finish() override {
    push_token();
    if (!bytes_.empty()) emit(repair_utf8(bytes_));
    bytes_.clear();
    JoiningStage::finish();
  }

 private:
  void push_token() {
    const auto bytes = bytes_of_byte_level(token_);
    bytes_ += bytes ? *bytes : token_;
    token_.clear();
    std::string text;
    size_t at = 0;
    while (at < bytes_.size()) {
      const Utf8Step step = step_utf8(bytes_, at);
      if (step.kind == Utf8Step::Unfinished) break;
      text += step.kind == Utf8Step::Valid ? std::string_view(bytes_).substr(at, step.length) : kReplacementCharacter;
      at += step.length;
    }
    bytes_.erase(0, at);
    emit(text);
  }

  std::string token_, bytes_;
};

std::optional<char> byte_of(std::string_view token) {
  unsigned value = 0;
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

// A run of byte tokens becomes text if the whole run is valid UTF-8, otherwise one U+FFFD per byte. Hugging Face
// decides for the whole run, so the stage holds a run back until it ends.
class ByteFallbackStage : public TokenStage {
 protected:
  void token(std::string text) override {
    if (const auto byte = byte_of(text)) {
      bytes_.push_back(*byte);
      return;
    }
    end();
    emit(text);
  }

  void end() override {
    if (bytes_.empty()) return;
    if (is_valid_utf8(bytes_)) {
      emit(bytes_);
    } else {
      for (size_t i = 0; i < bytes_.size(); ++i) emit(kReplacementCharacter);
    }
    bytes_.clear();
  }

 private:
  std::string bytes_;
};

class FuseStage : public JoiningStage {
 public:
  void chunk(std::string_view text, bool, bool) override { emit(text); }
};

// Strips up to `start` characters from the beginning of each token and up to `stop` from its end.
class StripStage : public DecodeStage {
 public:
  StripStage(std::string character, size_t start, size_t stop)
      : character_(std::move(character)), start_(start), stop_(stop) {}

  void chunk(std::string_view text, bool begins, bool ends) override {
    if (begins) left_ = start_, fresh_ = true;
    for (; left_ > 0 && text.starts_with(character_); --left_) text.remove_prefix(character_.size());
    if (!text.empty()) left_ = 0;
    if (stop_ > 0) {
      held_ += text;
      if (!ends) return;
      cut_end();
      next().chunk(held_, true, true);
      held_.clear();
      return;
    }
    next().chunk(text, fresh_, ends);
    fresh_ = false;
  }

  void finish() override {
    if (!held_.empty()) {
      cut_end();
      next().chunk(held_, true, true);
      held_.clear();
    }
    next().finish();
  }

 private:
  void cut_end() {
    for (size_t i = 0; i < stop_ && held_.ends_with(character_); ++i) held_.resize(held_.size() - character_.size());
  }

  std::string character_, held_;
  size_t start_, stop_, left_ = 0;
  bool fresh_ = false;
};

std::string replaced(const Pattern& pattern, const std::string& content, std::string_view text) {
  constexpr size_t kMost = 64 << 20;  // a chain of replacements could grow a token without bound
  std::string result;
  size_t last = 0;
  pattern.find_all(text, [&](size_t begin, size_t end) {
    result += text.substr(last, begin - last);
    result += content;
    last = end;
    if (result.size() > kMost) fail(ErrorKind::BadFile, "the tokenizer's decoder makes the text grow too much");
  });
  return result += text.substr(last);
}

std::string replaced(const std::string& text, const std::string& content, std::string_view in) {
  return text.empty() ? std::string(in) : replaced(Pattern::text(text), content, in);
}

class ReplaceStage : public TokenStage {
 public:
  ReplaceStage(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

 protected:
  void token(std::string text) override { emit(replaced(pattern_, content_, text)); }

 private:
  Pattern pattern_;
  std::string content_;
};

class MetaspaceStage : public TokenStage {
 public:
  MetaspaceStage(std::string replacement, bool drop_first)
      : replacement_(std::move(replacement)), drop_first_(drop_first) {}

 protected:
  void token(std::string text) override {
    emit(replaced(replacement_, first_ && drop_first_ ? "" : " ", text));
    first_ = false;
  }
  void end() override { first_ = true; }

 private:
  std::string replacement_;
  bool drop_first_, first_ = true;
};

// Removes the spaces that tokenization put around English punctuation.
std::string cleaned_up(std::string text) {
  static const std::pair<std::string, std::string> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kRules) text = replaced(from, to, text);
  return text;
}

class WordPieceStage : public TokenStage {
 public:
  WordPieceStage(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}

 protected:
  void token(std::string text) override {
    if (!first_) text = text.starts_with(prefix_) ? text.substr(prefix_.size()) : " " + text;
    first_ = false;
    emit(cleanup_ ? cleaned_up(std::move(text)) : text);
  }
  void end() override { first_ = true; }

 private:
  std::string prefix_;
  bool cleanup_, first_ = true;
};

// Replaces the end-of-word suffix with a space, except in the last token. The stage therefore holds back one token.
class BpeStage : public TokenStage {
 public:
  explicit BpeStage(std::string suffix) : suffix_(std::move(suffix)) {}

 protected:
  void token(std::string text) override {
    if (held_) emit(replaced(suffix_, " ", *held_));
    held_ = std::move(text);
  }
  void end() override {
    if (held_) emit(replaced(suffix_, "", *held_));
    held_.reset();
  }

 private:
  std::string suffix_;
  std::optional<std::string> held_;
};

class CtcStage : public TokenStage {
 public:
  CtcStage(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}

 protected:
  void token(std::string text) override {
    if (previous_ == text) return;
    previous_ = text;
    text = replaced(pad_, "", text);
    if (cleanup_) text = replaced(delimiter_, " ", cleaned_up(std::move(text)));
    if (!text.empty()) emit(text);
  }
  void end() override { previous_.reset(); }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
  std::optional<std::string> previous_;
};

class SpaceStage : public TokenStage {
 protected:
  void token(std::string text) override {
    emit(first_ ? text : " " + text);
    first_ = false;
  }
  void end() override { first_ = true; }

 private:
  bool first_ = true;
};

}  // namespace

DecodeStep byte_level_decoder() {
  return {opener<ByteLevelStage>(), [](std::string token) { return bytes_of_byte_level(token).value_or(token); }};
}

DecodeStep byte_fallback_decoder() {
  return {opener<ByteFallbackStage>(), [](std::string token) {
            const auto byte = byte_of(token);
            return byte ? std::string(1, *byte) : token;
          }};
}

DecodeStep fuse_decoder() { return {opener<FuseStage>()}; }
DecodeStep strip_decoder(std::string character, size_t start, size_t stop) {
  return {opener<StripStage>(character, start, stop)};
}

DecodeStep replace_decoder(Pattern pattern, std::string content) {
  return {opener<ReplaceStage>(pattern, content), [=](std::string token) { return replaced(pattern, content, token); }};
}

DecodeStep metaspace_decoder(std::string replacement, bool drop_first) {
  return {opener<MetaspaceStage>(replacement, drop_first),
          [=](std::string token) { return replaced(replacement, " ", token); }};
}

DecodeStep wordpiece_decoder(std::string prefix, bool cleanup) { return {opener<WordPieceStage>(prefix, cleanup)}; }
DecodeStep bpe_decoder(std::string suffix) {
  return {opener<BpeStage>(suffix), [=](std::string token) { return replaced(suffix, " ", token); }};
}
DecodeStep ctc_decoder(std::string pad, std::string delimiter, bool cleanup) {
  return {opener<CtcStage>(pad, delimiter, cleanup)};
}
DecodeStep space_between_tokens() { return {opener<SpaceStage>()}; }

class DecodeStream::Output : public DecodeStage {
 public:
  void chunk(std::string_view text, bool, bool) override { text_ += text; }
  void finish() override {}
  std::string take() {
    std::string text;
    text.swap(text_);
    return text;
  }

 private:
  std::string text_;
};

DecodeStream::DecodeStream(const std::vector<DecodeStep>& steps) : output_(std::make_unique<Output>()) {
  for (const DecodeStep& step : steps) {
    stages_.push_back(step.open());
    if (stages_.size() > 1) stages_[stages_.size() - 2]->set_next(*stages_.back());
  }
  if (!stages_.empty()) stages_.back()->set_next(*output_);
}

DecodeStream::~DecodeStream() = default;

void DecodeStream::push(std::string_view token) { (stages_.empty() ? *output_ : *stages_[0]).chunk(token, true, true); }
void DecodeStream::finish() { (stages_.empty() ? *output_ : *stages_[0]).finish(); }
std::string DecodeStream::take() { return output_->take(); }

}  // namespace millrace
