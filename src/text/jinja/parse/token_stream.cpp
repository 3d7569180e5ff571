#include "text/jinja/parse/token_stream.h"

#include "text/jinja/template_error.h"

namespace millrace::jinja {

Token TokenStream::take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::skip_name(std::string_view name) {
  const bool found = current().is_name(name);
  if (found) take();
  return found;
}

bool TokenStream::skip_operator(std::string_view symbol) {
  const bool found = current().is_operator(symbol);
  if (found) take();
  return found;
}

Token TokenStream::expect(Token::Type type, std::string_view description) {
  if (!current().is(type)) {
    fail_template_at(current().line, "expected {}, got '{}'", description, current().describe());
  }
  return take();
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_template_at(current().line, "expected '{}', got '{}'", name, current().describe());
}

void TokenStream::expect_operator(std::string_view symbol) {
  if (!skip_operator(symbol)) {
    fail_template_at(current().line, "expected '{}', got '{}'", symbol, current().describe());
  }
}

}  // namespace millrace::jinja
