#include "text/jinja/parse/expression_parser.h"

#include <algorithm>

#include "text/jinja/budget.h"
#include "text/jinja/parse/ast_walk.h"
#include "text/jinja/template_error.h"

namespace millrace::jinja {
namespace {

using Kind = Expression::Kind;
using Type = Token::Type;

constexpr int kMaxExpressionDepth = 250;

// Sets the depth of a node: one more than its deepest part.
ExpressionPtr finished(ExpressionPtr node) {
  for_each_part(*node, [&](const Expression& part) { node->depth = std::max(node->depth, part.depth + 1); });
  if (node->depth > kMaxExpressionDepth) fail_template_at(node->line, "an expression is nested too deeply");
  return node;
}

ExpressionPtr make_collection(Kind kind, int line, ExpressionList items) {
  return finished(std::make_unique<Collection>(kind, line, std::move(items)));
}

ExpressionPtr make_binary(Kind kind, int line, BinaryOperator op, ExpressionPtr left, ExpressionPtr right) {
  return finished(std::make_unique<Binary>(kind, line, op, std::move(left), std::move(right)));
}

ExpressionPtr make_unary(Kind kind, int line, ExpressionPtr operand) {
  return finished(std::make_unique<Unary>(kind, line, std::move(operand)));
}

// True for names, namespace attributes and tuples of them.
bool can_assign(const Expression& target) {
  if (target.kind == Kind::Tuple) {
    const auto& items = static_cast<const Collection&>(target).items;
    return std::all_of(items.begin(), items.end(), [](const ExpressionPtr& item) { return can_assign(*item); });
  }
  return target.kind == Kind::Name || target.kind == Kind::NamespaceTarget;
}

}  // namespace

ExpressionPtr ExpressionParser::parse_expression() {
  const DepthGuard guard;
  int line = stream_.current().line;
  ExpressionPtr result = parse_or();
  while (stream_.skip_name("if")) {
    auto node = std::make_unique<Conditional>(line);
    node->then = std::move(result);
    node->test = parse_or();
    if (stream_.skip_name("else")) node->otherwise = parse_expression();
    result = finished(std::move(node));
    line = stream_.current().line;
  }
  return result;
}

ExpressionPtr ExpressionParser::parse_or() {
  const int line = stream_.current().line;
  ExpressionPtr left = parse_and();
  while (stream_.skip_name("or")) left = make_binary(Kind::Or, line, {}, std::move(left), parse_and());
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  const int line = stream_.current().line;
  ExpressionPtr left = parse_not();
  while (stream_.skip_name("and")) left = make_binary(Kind::And, line, {}, std::move(left), parse_not());
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!stream_.current().is_name("not")) return parse_compare();
  const DepthGuard guard;
  const int line = stream_.take().line;
  return make_unary(Kind::Not, line, parse_not());
}

ExpressionPtr ExpressionParser::parse_compare() {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::Equal},       {"!=", Comparison::NotEqual}, {"<", Comparison::Less},
      {"<=", Comparison::LessOrEqual}, {">", Comparison::Greater},   {">=", Comparison::GreaterOrEqual}};
  const int line = stream_.current().line;
  auto node = std::make_unique<Compare>(line, parse_sum());
  while (true) {
    const Token& token = stream_.current();
    const auto* known = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](const auto& entry) { return token.is_operator(entry.first); });
    Comparison comparison;
    if (known != std::end(kOperators)) {
      stream_.take();
      comparison = known->second;
    } else if (stream_.skip_name("in")) {
      comparison = Comparison::In;
    } else if (token.is_name("not") && stream_.look_ahead().is_name("in")) {
      stream_.take();
      stream_.take();
      comparison = Comparison::NotIn;
    } else {
      break;
    }
    node->rest.emplace_back(comparison, parse_sum());
  }
  if (node->rest.empty()) return std::move(node->first);
  return finished(std::move(node));
}

ExpressionPtr ExpressionParser::parse_sum() {
  const int line = stream_.current().line;
  ExpressionPtr left = parse_concat();
  while (true) {
    const bool add = stream_.current().is_operator("+");
    if (!add && !stream_.current().is_operator("-")) return left;
    stream_.take();
    left = make_binary(Kind::Binary, line, add ? BinaryOperator::Add : BinaryOperator::Subtract, std::move(left),
                       parse_concat());
  }
}

ExpressionPtr ExpressionParser::parse_concat() {
  const int line = stream_.current().line;
  ExpressionList items;
  items.push_back(parse_product());
  while (stream_.skip_operator("~")) items.push_back(parse_product());
  if (items.size() == 1) return std::move(items[0]);
  return make_collection(Kind::Concat, line, std::move(items));
}

ExpressionPtr ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOperator> kOperators[] = {{"*", BinaryOperator::Multiply},
                                                                               {"/", BinaryOperator::Divide},
                                                                               {"//", BinaryOperator::FloorDivide},
                                                                               {"%", BinaryOperator::Modulo}};
  const int line = stream_.current().line;
  ExpressionPtr left = parse_power();
  while (true) {
    const auto* known = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](const auto& entry) { return stream_.current().is_operator(entry.first); });
    if (known == std::end(kOperators)) return left;
    stream_.take();
    left = make_binary(Kind::Binary, line, known->second, std::move(left), parse_power());
  }
}

ExpressionPtr ExpressionParser::parse_power() {
  const int line = stream_.current().line;
  ExpressionPtr left = parse_unary(true);
  while (stream_.skip_operator("**")) {
    left = make_binary(Kind::Binary, line, BinaryOperator::Power, std::move(left), parse_unary(true));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const DepthGuard guard;
  const int line = stream_.current().line;
  ExpressionPtr node;
  if (stream_.skip_operator("-")) {
    node = make_unary(Kind::Negate, line, parse_unary(false));
  } else if (stream_.skip_operator("+")) {
    node = make_unary(Kind::Plus, line, parse_unary(false));
  } else {
    node = parse_primary(false);
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary(bool with_namespace) {
  const Token& token = stream_.current();
  const int line = token.line;
  switch (token.type) {
    case Type::Name:
      return parse_name(with_namespace);
    case Type::String: {
      std::string text;
      while (stream_.current().is(Type::String)) text += stream_.take().text;
      return std::make_unique<Literal>(line, Value::text(std::move(text), {}));
    }
    case Type::Integer:
    case Type::Float:
      return std::make_unique<Literal>(line, stream_.take().value);
    default:
      break;
  }
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  if (!token.is_operator("(")) fail_template_at(line, "unexpected '{}'", token.describe());
  stream_.take();
  ExpressionPtr inner = parse_tuple(true, {}, true);
  stream_.expect_operator(")");
  return inner;
}

ExpressionPtr ExpressionParser::parse_name(bool with_namespace) {
  const Token token = stream_.take();
  if (token.text == "true" || token.text == "True") return std::make_unique<Literal>(token.line, Value::boolean(true));
  if (token.text == "false" || token.text == "False") {
    return std::make_unique<Literal>(token.line, Value::boolean(false));
  }
  if (token.text == "none" || token.text == "None") return std::make_unique<Literal>(token.line, Value());
  const SymbolId id = symbols_.intern(token.text);
  if (with_namespace && stream_.skip_operator(".")) {
    return std::make_unique<NamespaceTarget>(token.line, id, stream_.expect(Type::Name, "a name").text);
  }
  return std::make_unique<Name>(token.line, id);
}

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  const Token& token = stream_.current();
  return token.is(Type::VariableEnd) || token.is(Type::BlockEnd) || token.is_operator(")") ||
         (!end_name.empty() && token.is_name(end_name));
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view end_name, bool in_parentheses) {
  const DepthGuard guard;
  const int line = stream_.current().line;
  ExpressionList items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) stream_.expect_operator(",");
    if (at_tuple_end(end_name)) break;
    items.push_back(with_conditional ? parse_expression() : parse_or());
    if (!stream_.current().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!in_parentheses) {
      fail_template_at(stream_.current().line, "Expected an expression, got '{}'", stream_.current().describe());
    }
  }
  return make_collection(Kind::Tuple, line, std::move(items));
}

ExpressionPtr ExpressionParser::parse_assignment_target(bool with_namespace, std::string_view end_name) {
  const int line = stream_.current().line;
  ExpressionList items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) stream_.expect_operator(",");
    if (at_tuple_end(end_name)) break;
    items.push_back(parse_primary(with_namespace));
    if (!stream_.current().is_operator(",")) break;
    is_tuple = true;
  }
  if (items.empty()) fail_template_at(line, "Expected an expression, got '{}'", stream_.current().describe());
  ExpressionPtr target = is_tuple ? make_collection(Kind::Tuple, line, std::move(items)) : std::move(items[0]);
  if (!can_assign(*target)) fail_template_at(line, "can't assign to this");
  return target;
}

Token ExpressionParser::parse_target_name() {
  Token token = stream_.expect(Type::Name, "a name");
  static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), token.text) != std::end(kConstants)) {
    fail_template_at(token.line, "can't assign to '{}'", token.text);
  }
  return token;
}

ExpressionPtr ExpressionParser::parse_list() {
  const int line = stream_.take().line;
  ExpressionList items;
  while (!stream_.current().is_operator("]")) {
    if (!items.empty()) stream_.expect_operator(",");
    if (stream_.current().is_operator("]")) break;
    items.push_back(parse_expression());
  }
  stream_.expect_operator("]");
  return make_collection(Kind::List, line, std::move(items));
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto node = std::make_unique<DictLiteral>(stream_.take().line);
  while (!stream_.current().is_operator("}")) {
    if (!node->entries.empty()) stream_.expect_operator(",");
    if (stream_.current().is_operator("}")) break;
    ExpressionPtr key = parse_expression();
    stream_.expect_operator(":");
    node->entries.emplace_back(std::move(key), parse_expression());
  }
  stream_.expect_operator("}");
  return finished(std::move(node));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    const Token& token = stream_.current();
    if (token.is_operator(".") || token.is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (token.is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr node) {
  while (true) {
    const Token& token = stream_.current();
    if (token.is_operator("|")) {
      node = parse_filters(std::move(node));
    } else if (token.is_name("is")) {
      node = parse_test(std::move(node));
    } else if (token.is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr node, int line) {
  const Token name = stream_.take();
  if (name.is(Type::Name)) return finished(std::make_unique<Attribute>(line, std::move(node), name.text));
  if (!name.is(Type::Integer)) fail_template_at(name.line, "expected name or number");
  auto key = std::make_unique<Literal>(name.line, name.value);
  return finished(std::make_unique<Item>(line, std::move(node), std::move(key)));
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr node) {
  const Token token = stream_.take();
  if (token.text == ".") return parse_attribute(std::move(node), token.line);

  const auto at_part_end = [&] {
    return stream_.current().is_operator(":") || stream_.current().is_operator("]") ||
           stream_.current().is_operator(",");
  };
  ExpressionPtr first;
  if (!at_part_end()) first = parse_expression();
  if (stream_.skip_operator(":")) {
    auto slice = std::make_unique<Slice>(token.line);
    slice->object = std::move(node);
    slice->start = std::move(first);
    if (!at_part_end()) slice->stop = parse_expression();
    if (stream_.skip_operator(":") && !at_part_end()) slice->step = parse_expression();
    stream_.expect_operator("]");
    return finished(std::move(slice));
  }

  ExpressionList keys;
  if (first) keys.push_back(std::move(first));
  while (!stream_.current().is_operator("]")) {
    stream_.expect_operator(",");
    keys.push_back(parse_expression());
  }
  stream_.expect_operator("]");
  ExpressionPtr key = keys.size() == 1 ? std::move(keys[0]) : make_collection(Kind::Tuple, token.line, std::move(keys));
  return finished(std::make_unique<Item>(token.line, std::move(node), std::move(key)));
}

CallArguments ExpressionParser::parse_call_arguments() {
  const int line = stream_.current().line;
  stream_.expect_operator("(");
  CallArguments arguments;
  const auto ensure = [&](bool holds) {
    if (!holds) fail_template_at(line, "invalid syntax for function call expression");
  };
  bool comma_needed = false;
  while (!stream_.current().is_operator(")")) {
    if (comma_needed) {
      stream_.expect_operator(",");
      if (stream_.current().is_operator(")")) break;
    }
    comma_needed = true;
    if (stream_.skip_operator("*")) {
      ensure(!arguments.star && !arguments.double_star);
      arguments.star = parse_expression();
    } else if (stream_.skip_operator("**")) {
      ensure(!arguments.double_star);
      arguments.double_star = parse_expression();
    } else if (stream_.current().is(Type::Name) && stream_.look_ahead().is_operator("=")) {
      ensure(!arguments.double_star);
      const std::string name = stream_.take().text;
      stream_.take();
      const bool repeated = std::any_of(arguments.named.begin(), arguments.named.end(),
                                        [&](const auto& entry) { return entry.first == name; });
      if (repeated) fail_template_at(line, "keyword argument repeated: {}", name);
      arguments.named.emplace_back(name, parse_expression());
    } else {
      ensure(!arguments.star && !arguments.double_star && arguments.named.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  stream_.expect_operator(")");
  return arguments;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr node) {
  auto call = std::make_unique<Call>(stream_.current().line, std::move(node));
  call->arguments = parse_call_arguments();
  return finished(std::move(call));
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr subject, bool inline_start) {
  while (inline_start || stream_.current().is_operator("|")) {
    if (!inline_start) stream_.take();
    inline_start = false;
    const Token token = stream_.expect(Type::Name, "a filter's name");
    std::string name = token.text;
    while (stream_.skip_operator(".")) name += "." + stream_.expect(Type::Name, "a name").text;
    auto filter = std::make_unique<Applied>(Kind::Filter, token.line, std::move(subject), std::move(name));
    if (stream_.current().is_operator("(")) filter->arguments = parse_call_arguments();
    subject = finished(std::move(filter));
  }
  return subject;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr node) {
  const int line = stream_.take().line;
  const bool negated = stream_.skip_name("not");
  std::string name = stream_.expect(Type::Name, "a test's name").text;
  while (stream_.skip_operator(".")) name += "." + stream_.expect(Type::Name, "a name").text;
  auto test = std::make_unique<Applied>(Kind::Test, line, std::move(node), std::move(name));
  const Token& next = stream_.current();
  const bool is_argument =
      next.is(Type::String) || next.is(Type::Integer) || next.is(Type::Float) || next.is_operator("[") ||
      next.is_operator("{") ||
      (next.is(Type::Name) && !next.is_name("else") && !next.is_name("or") && !next.is_name("and"));
  if (next.is_operator("(")) {
    test->arguments = parse_call_arguments();
  } else if (is_argument) {
    if (next.is_name("is")) fail_template_at(line, "You cannot chain multiple tests with is");
    test->arguments.positional.push_back(parse_postfix(parse_primary(false)));
  }
  ExpressionPtr result = finished(std::move(test));
  return negated ? make_unary(Kind::Not, line, std::move(result)) : std::move(result);
}

}  // namespace millrace::jinja
