// The parser of expressions.
#pragma once

#include <string_view>

#include "text/jinja/parse/ast.h"
#include "text/jinja/parse/token_stream.h"

namespace millrace::jinja {

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& stream, SymbolTable& symbols) : stream_(stream), symbols_(symbols) {}

  ExpressionPtr parse_expression();
  // Parses one expression, or a tuple if commas follow. `end_name` is a keyword that ends it, such as `in` of a for.
  ExpressionPtr parse_tuple(bool with_conditional, std::string_view end_name = {}, bool in_parentheses = false);
  // Parses a name, a tuple of names, or, with `with_namespace`, namespace.attribute.
  ExpressionPtr parse_assignment_target(bool with_namespace, std::string_view end_name = {});
  Token parse_target_name();
  // Parses | filter | filter ... for a subject that may be null. `inline_start`: no bar in front of the first filter.
  ExpressionPtr parse_filters(ExpressionPtr subject, bool inline_start = false);

 private:
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary(bool with_namespace);
  ExpressionPtr parse_name(bool with_namespace);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_attribute(ExpressionPtr node, int line);
  ExpressionPtr parse_call(ExpressionPtr node);
  ExpressionPtr parse_test(ExpressionPtr node);
  CallArguments parse_call_arguments();
  bool at_tuple_end(std::string_view end_name) const;

  TokenStream& stream_;
  SymbolTable& symbols_;
};

}  // namespace millrace::jinja
