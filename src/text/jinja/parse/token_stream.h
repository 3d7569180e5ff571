// A cursor over the tokens of a template. Unexpected tokens are errors with their line.
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/parse/lexer.h"

namespace millrace::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& current() const { return tokens_[at_]; }
  const Token& look_ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take();
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view symbol);
  Token expect(Token::Type type, std::string_view description);
  void expect_name(std::string_view name);
  void expect_operator(std::string_view symbol);

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace millrace::jinja
