// Base classes of decoder stages.
#pragma once

#include "text/tokenizer/decoder.h"

namespace millrace {

// Base of stages that need whole tokens.
class TokenStage : public DecodeStage {
 public:
  void chunk(std::string_view text, bool, bool ends) final {
    buffer_ += text;
    open_ = !ends;
    if (ends) deliver();
  }

  void finish() final {
    if (open_) deliver();
    open_ = false;
    end();
    next().finish();
  }

 protected:
  virtual void token(std::string text) = 0;
  virtual void end() {}  // called behind the last token

  void emit(std::string_view text) { next().chunk(text, true, true); }

 private:
  void deliver() {
    std::string whole;
    whole.swap(buffer_);
    token(std::move(whole));
  }

  std::string buffer_;
  bool open_ = false;  // the buffer holds an incomplete token
};

// Base of stages that join all tokens into one.
class JoiningStage : public DecodeStage {
 public:
  void finish() override {
    begun_ = false;
    next().finish();
  }

 protected:
  void emit(std::string_view text) {
    next().chunk(text, !begun_, false);
    begun_ = true;
  }

 private:
  bool begun_ = false;
};

}  // namespace millrace
