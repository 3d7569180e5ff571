#include "text/jinja/parse/parser.h"

#include <algorithm>
#include <limits>

#include "text/jinja/parse/expression_parser.h"
#include "text/jinja/parse/scope_analysis.h"
#include "text/jinja/parse/template_checks.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

using Type = Token::Type;
using EndTags = std::initializer_list<std::string_view>;

constexpr size_t kMaxSource = size_t{1} << 20;
constexpr int kMaxParseDepth = 500;

class Parser {
 public:
  Parser(TokenStream& stream, SymbolTable& symbols)
      : stream_(stream), symbols_(symbols), expressions_(stream, symbols) {}

  Body parse_until(EndTags end_tags);

 private:
  using StatementPtr = std::unique_ptr<Statement>;

  StatementPtr parse_statement();
  StatementPtr parse_output();
  StatementPtr parse_print();
  StatementPtr parse_if();
  StatementPtr parse_for();
  StatementPtr parse_set();
  StatementPtr parse_macro();
  StatementPtr parse_call_block();
  StatementPtr parse_filter_block();
  StatementPtr parse_with();
  StatementPtr parse_generation();
  StatementPtr parse_block();
  StatementPtr parse_loader(const std::string& tag);
  Signature parse_signature();
  // Parse a body up to an end tag. The first function leaves the end tag as the current token, the second skips it.
  Body parse_body(EndTags end_tags);
  Body parse_body_and_drop(std::string_view end_tag);
  [[noreturn]] void fail_unknown_tag(const Token& tag) const;

  TokenStream& stream_;
  SymbolTable& symbols_;
  ExpressionParser expressions_;
  std::vector<std::string> open_tags_;
};

Body Parser::parse_until(EndTags end_tags) {
  const DepthGuard guard;
  Body body;
  while (true) {
    const Token& token = stream_.current();
    if (token.is(Type::End)) {
      if (end_tags.size() == 0) return body;
      fail_template_at(token.line, "Unexpected end of template: '{}' is not closed", open_tags_.back());
    }
    if (token.is(Type::Data)) {
      body.push_back(std::make_unique<TextStatement>(token.line, token.text));
      stream_.take();
    } else if (token.is(Type::VariableBegin)) {
      body.push_back(parse_output());
    } else {
      stream_.expect(Type::BlockBegin, "a tag");
      const Token& tag = stream_.current();
      if (std::any_of(end_tags.begin(), end_tags.end(), [&](auto name) { return tag.is_name(name); })) return body;
      body.push_back(parse_statement());
      stream_.expect(Type::BlockEnd, "the end of the statement block");
    }
  }
}

Body Parser::parse_body(EndTags end_tags) {
  stream_.skip_operator(":");
  stream_.expect(Type::BlockEnd, "the end of the statement block");
  return parse_until(end_tags);
}

Body Parser::parse_body_and_drop(std::string_view end_tag) {
  Body body = parse_body({end_tag});
  stream_.take();
  return body;
}

void Parser::fail_unknown_tag(const Token& tag) const {
  if (open_tags_.empty()) fail_template_at(tag.line, "Encountered unknown tag '{}'.", tag.text);
  fail_template_at(tag.line, "Encountered unknown tag '{}'. The innermost block that needs to be closed is '{}'.",
                   tag.text, open_tags_.back());
}

Parser::StatementPtr Parser::parse_statement() {
  const Token tag = stream_.current();
  if (!tag.is(Type::Name)) fail_template_at(tag.line, "tag name expected");
  using Parse = StatementPtr (Parser::*)();
  static constexpr std::pair<std::string_view, Parse> kTags[] = {
      {"if", &Parser::parse_if},       {"for", &Parser::parse_for},         {"set", &Parser::parse_set},
      {"macro", &Parser::parse_macro}, {"call", &Parser::parse_call_block}, {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},   {"print", &Parser::parse_print},     {"generation", &Parser::parse_generation},
      {"block", &Parser::parse_block},
  };
  stream_.take();
  if (tag.text == "break") return std::make_unique<Jump>(Statement::Kind::Break, tag.line);
  if (tag.text == "continue") return std::make_unique<Jump>(Statement::Kind::Continue, tag.line);
  if (tag.text == "include" || tag.text == "import" || tag.text == "from" || tag.text == "extends") {
    return parse_loader(tag.text);
  }
  if (tag.text == "autoescape") fail_template_at(tag.line, "the tag 'autoescape' is not supported");
  const auto* known =
      std::find_if(std::begin(kTags), std::end(kTags), [&](const auto& entry) { return entry.first == tag.text; });
  if (known == std::end(kTags)) fail_unknown_tag(tag);
  open_tags_.push_back(tag.text);
  StatementPtr statement = (this->*known->second)();
  open_tags_.pop_back();
  return statement;
}

Parser::StatementPtr Parser::parse_output() {
  auto output = std::make_unique<Output>(stream_.take().line);
  output->expressions.push_back(expressions_.parse_tuple(true));
  stream_.expect(Type::VariableEnd, "the end of the print statement");
  return output;
}

Parser::StatementPtr Parser::parse_print() {
  auto output = std::make_unique<Output>(stream_.current().line);
  while (!stream_.current().is(Type::BlockEnd)) {
    if (!output->expressions.empty()) stream_.expect_operator(",");
    output->expressions.push_back(expressions_.parse_expression());
  }
  return output;
}

Parser::StatementPtr Parser::parse_if() {
  auto statement = std::make_unique<If>(stream_.current().line);
  while (true) {
    ExpressionPtr test = expressions_.parse_tuple(false);
    Body body = parse_body({"elif", "else", "endif"});
    statement->branches.emplace_back(std::move(test), std::move(body));
    const std::string tag = stream_.take().text;
    if (tag == "elif") continue;
    if (tag == "else") statement->otherwise = parse_body_and_drop("endif");
    return statement;
  }
}

Parser::StatementPtr Parser::parse_for() {
  auto statement = std::make_unique<For>(stream_.current().line);
  statement->target = expressions_.parse_assignment_target(false, "in");
  stream_.expect_name("in");
  statement->iterable = expressions_.parse_tuple(false, "recursive");
  if (stream_.skip_name("if")) statement->filter = expressions_.parse_expression();
  statement->recursive = stream_.skip_name("recursive");
  statement->body.statements = parse_body({"endfor", "else"});
  if (stream_.take().text == "else") statement->otherwise.statements = parse_body_and_drop("endfor");
  return statement;
}

Parser::StatementPtr Parser::parse_set() {
  const int line = stream_.current().line;
  ExpressionPtr target = expressions_.parse_assignment_target(true);
  if (stream_.skip_operator("=")) {
    auto statement = std::make_unique<Set>(line);
    statement->target = std::move(target);
    statement->value = expressions_.parse_tuple(true);
    return statement;
  }
  auto statement = std::make_unique<SetBlock>(line);
  statement->target = std::move(target);
  statement->filter = expressions_.parse_filters(nullptr);
  statement->body.statements = parse_body_and_drop("endset");
  return statement;
}

Signature Parser::parse_signature() {
  Signature signature;
  stream_.expect_operator("(");
  while (!stream_.current().is_operator(")")) {
    if (!signature.parameters.empty()) stream_.expect_operator(",");
    const Token name = expressions_.parse_target_name();
    const SymbolId id = symbols_.intern(name.text);
    auto& known = signature.parameters;
    if (std::find(known.begin(), known.end(), id) != known.end()) {
      fail_template_at(name.line, "duplicate argument '{}'", name.text);
    }
    known.push_back(id);
    if (stream_.skip_operator("=")) {
      signature.defaults.push_back(expressions_.parse_expression());
    } else if (!signature.defaults.empty()) {
      fail_template_at(name.line, "non-default argument follows default argument");
    }
  }
  stream_.expect_operator(")");
  return signature;
}

Parser::StatementPtr Parser::parse_macro() {
  auto statement = std::make_unique<Macro>(stream_.current().line);
  statement->name = symbols_.intern(expressions_.parse_target_name().text);
  statement->signature = parse_signature();
  statement->body.statements = parse_body_and_drop("endmacro");
  return statement;
}

Parser::StatementPtr Parser::parse_call_block() {
  auto statement = std::make_unique<CallBlock>(stream_.current().line);
  if (stream_.current().is_operator("(")) statement->signature = parse_signature();
  ExpressionPtr call = expressions_.parse_expression();
  if (call->kind != Expression::Kind::Call) fail_template_at(statement->line, "expected call");
  statement->call.reset(static_cast<Call*>(call.release()));
  statement->body.statements = parse_body_and_drop("endcall");
  return statement;
}

Parser::StatementPtr Parser::parse_filter_block() {
  auto statement = std::make_unique<FilterBlock>(stream_.current().line);
  statement->filter = expressions_.parse_filters(nullptr, true);
  statement->body.statements = parse_body_and_drop("endfilter");
  return statement;
}

Parser::StatementPtr Parser::parse_with() {
  auto statement = std::make_unique<With>(stream_.current().line);
  while (!stream_.current().is(Type::BlockEnd) && !stream_.current().is(Type::End)) {
    if (!statement->assignments.empty()) stream_.expect_operator(",");
    ExpressionPtr target = expressions_.parse_assignment_target(false);
    stream_.expect_operator("=");
    statement->assignments.emplace_back(std::move(target), expressions_.parse_expression());
  }
  statement->body.statements = parse_body_and_drop("endwith");
  return statement;
}

Parser::StatementPtr Parser::parse_generation() {
  auto statement = std::make_unique<Generation>(stream_.current().line);
  statement->body.statements = parse_body_and_drop("endgeneration");
  return statement;
}

Parser::StatementPtr Parser::parse_block() {
  auto statement = std::make_unique<Block>(stream_.current().line);
  statement->name = stream_.expect(Type::Name, "the block's name").text;
  statement->scoped = stream_.skip_name("scoped");
  statement->required = stream_.skip_name("required");
  statement->body.statements = parse_body_and_drop("endblock");
  stream_.skip_name(statement->name);
  return statement;
}

Parser::StatementPtr Parser::parse_loader(const std::string& tag) {
  const int line = stream_.current().line;
  while (!stream_.current().is(Type::BlockEnd) && !stream_.current().is(Type::End)) stream_.take();
  return std::make_unique<NeedsLoader>(line, tag);
}

}  // namespace

Template parse_template(std::string_view source) {
  if (source.size() > kMaxSource) fail_template_at(1, "a template of more than {} bytes is too long", kMaxSource);
  if (!is_valid_utf8(source)) fail_template_at(1, "the template is not valid UTF-8");
  const Budget budget({.steps = std::numeric_limits<int64_t>::max(), .depth = kMaxParseDepth});
  Template result;
  TokenStream stream(tokenize(source));
  Parser parser(stream, result.symbols);
  try {
    result.body.statements = parser.parse_until({});
    analyze_scopes(result);
    check_template(result);
  } catch (const TemplateError& error) {
    if (error.line() > 0) throw;
    throw TemplateError(error.what(), stream.current().line);
  }
  return result;
}

}  // namespace millrace::jinja
