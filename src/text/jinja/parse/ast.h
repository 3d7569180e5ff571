// The syntax tree of a template. Names are indices into a symbol table, so that scopes compare integers.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/operators.h"
#include "text/jinja/value/value.h"

namespace millrace::jinja {

using SymbolId = int;

class SymbolTable {
 public:
  SymbolId intern(std::string_view name) {
    const auto [entry, is_new] = ids_.try_emplace(std::string(name), static_cast<SymbolId>(names_.size()));
    if (is_new) names_.push_back(entry->first);
    return entry->second;
  }
  SymbolId find(std::string_view name) const { return ids_.at(std::string(name)); }  // the name must exist
  const std::string& name(SymbolId id) const { return names_[static_cast<size_t>(id)]; }
  size_t size() const { return names_.size(); }

 private:
  std::unordered_map<std::string, SymbolId> ids_;
  std::vector<std::string> names_;
};

// ---- expressions

struct Expression {
  enum class Kind {
    Literal,
    Name,
    NamespaceTarget,
    List,
    Tuple,
    Dict,
    Negate,
    Plus,
    Not,
    Binary,
    And,
    Or,
    Concat,
    Compare,
    Conditional,
    Attribute,
    Item,
    Slice,
    Call,
    Filter,
    Test,
  };
  Expression(Kind node_kind, int node_line) : kind(node_kind), line(node_line) {}
  virtual ~Expression() = default;
  const Kind kind;
  const int line;
  int depth = 1;  // nesting depth, which the parser bounds because evaluation recurses
};
using ExpressionPtr = std::unique_ptr<Expression>;
using ExpressionList = std::vector<ExpressionPtr>;

struct Literal : Expression {
  Literal(int line, Value literal) : Expression(Kind::Literal, line), value(std::move(literal)) {}
  const Value value;
};

struct Name : Expression {
  Name(int line, SymbolId symbol) : Expression(Kind::Name, line), id(symbol) {}
  const SymbolId id;
};

// namespace.attribute as the target of an assignment.
struct NamespaceTarget : Expression {
  NamespaceTarget(int line, SymbolId symbol, std::string name)
      : Expression(Kind::NamespaceTarget, line), id(symbol), attribute(std::move(name)) {}
  const SymbolId id;
  const std::string attribute;
};

struct Collection : Expression {  // List, Tuple or Concat
  Collection(Kind kind, int line, ExpressionList list) : Expression(kind, line), items(std::move(list)) {}
  const ExpressionList items;
};

struct DictLiteral : Expression {
  explicit DictLiteral(int line) : Expression(Kind::Dict, line) {}
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

struct Unary : Expression {  // Negate, Plus or Not
  Unary(Kind kind, int line, ExpressionPtr inner) : Expression(kind, line), operand(std::move(inner)) {}
  const ExpressionPtr operand;
};

struct Binary : Expression {  // Binary, And or Or
  Binary(Kind kind, int line, BinaryOperator which, ExpressionPtr a, ExpressionPtr b)
      : Expression(kind, line), op(which), left(std::move(a)), right(std::move(b)) {}
  const BinaryOperator op;
  const ExpressionPtr left, right;
};

enum class Comparison { Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, In, NotIn };

struct Compare : Expression {
  Compare(int line, ExpressionPtr left) : Expression(Kind::Compare, line), first(std::move(left)) {}
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;  // a < b < c
};

struct Conditional : Expression {
  explicit Conditional(int line) : Expression(Kind::Conditional, line) {}
  ExpressionPtr test, then, otherwise;  // otherwise may be null
};

struct Attribute : Expression {
  Attribute(int line, ExpressionPtr of, std::string attribute)
      : Expression(Kind::Attribute, line), object(std::move(of)), name(std::move(attribute)) {}
  const ExpressionPtr object;
  const std::string name;
};

struct Item : Expression {
  Item(int line, ExpressionPtr of, ExpressionPtr index)
      : Expression(Kind::Item, line), object(std::move(of)), key(std::move(index)) {}
  const ExpressionPtr object, key;
};

struct Slice : Expression {
  explicit Slice(int line) : Expression(Kind::Slice, line) {}
  ExpressionPtr object, start, stop, step;  // the last three may be null
};

struct CallArguments {
  ExpressionList positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, double_star;  // may be null
};

struct Call : Expression {
  Call(int line, ExpressionPtr function) : Expression(Kind::Call, line), callee(std::move(function)) {}
  const ExpressionPtr callee;
  CallArguments arguments;
};

// subject | name(arguments), or subject is name(arguments).
struct Applied : Expression {
  Applied(Kind kind, int line, ExpressionPtr of, std::string which)
      : Expression(kind, line), subject(std::move(of)), name(std::move(which)) {}
  const ExpressionPtr subject;  // null at the start of a filter block: applies to the block's text
  const std::string name;
  CallArguments arguments;
};

// ---- statements

struct Statement {
  enum class Kind {
    Text,
    Output,
    If,
    For,
    Set,
    SetBlock,
    Macro,
    CallBlock,
    FilterBlock,
    With,
    Generation,
    Block,
    Break,
    Continue,
    NeedsLoader,
  };
  Statement(Kind node_kind, int node_line) : kind(node_kind), line(node_line) {}
  virtual ~Statement() = default;
  const Kind kind;
  const int line;
};
using Body = std::vector<std::unique_ptr<Statement>>;

// A body with its own variables. Jinja resolves names at compile time: `hidden` are the names that the body assigns.
// They read as undefined before the assignment, even if the context has a variable of that name.
struct ScopedBody {
  Body statements;
  std::vector<SymbolId> hidden;
};

struct TextStatement : Statement {
  TextStatement(int line, std::string data) : Statement(Kind::Text, line), text(std::move(data)) {}
  const std::string text;
};

struct Output : Statement {
  explicit Output(int line) : Statement(Kind::Output, line) {}
  ExpressionList expressions;
};

struct If : Statement {
  explicit If(int line) : Statement(Kind::If, line) {}
  std::vector<std::pair<ExpressionPtr, Body>> branches;  // if and elif
  Body otherwise;
};

struct For : Statement {
  explicit For(int line) : Statement(Kind::For, line) {}
  ExpressionPtr target, iterable, filter;  // filter may be null
  bool recursive = false;
  bool uses_loop = false;  // the body reads `loop`
  ScopedBody body, otherwise;
};

struct Set : Statement {
  explicit Set(int line) : Statement(Kind::Set, line) {}
  ExpressionPtr target, value;
};

struct SetBlock : Statement {
  explicit SetBlock(int line) : Statement(Kind::SetBlock, line) {}
  ExpressionPtr target, filter;  // filter may be null
  ScopedBody body;
};

// The parameters of a macro or of a call block.
struct Signature {
  std::vector<SymbolId> parameters;
  ExpressionList defaults;  // of the last parameters
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct Macro : Statement {
  explicit Macro(int line) : Statement(Kind::Macro, line) {}
  SymbolId name = 0;
  Signature signature;
  ScopedBody body;
};

struct CallBlock : Statement {
  explicit CallBlock(int line) : Statement(Kind::CallBlock, line) {}
  Signature signature;
  std::unique_ptr<Call> call;
  ScopedBody body;
};

struct FilterBlock : Statement {
  explicit FilterBlock(int line) : Statement(Kind::FilterBlock, line) {}
  ExpressionPtr filter;
  ScopedBody body;
};

struct With : Statement {
  explicit With(int line) : Statement(Kind::With, line) {}
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments;
  ScopedBody body;
};

struct Generation : Statement {  // {% generation %}: Hugging Face's mark around the assistant's text
  explicit Generation(int line) : Statement(Kind::Generation, line) {}
  ScopedBody body;
};

struct Block : Statement {
  explicit Block(int line) : Statement(Kind::Block, line) {}
  std::string name;
  bool scoped = false, required = false;
  ScopedBody body;
};

struct Jump : Statement {  // Break or Continue
  Jump(Kind kind, int line) : Statement(kind, line) {}
};

struct NeedsLoader : Statement {  // include, import and extends: a chat template has no other templates to load
  NeedsLoader(int line, std::string name) : Statement(Kind::NeedsLoader, line), tag(std::move(name)) {}
  const std::string tag;
};

struct Template {
  SymbolTable symbols;
  ScopedBody body;
};

}  // namespace millrace::jinja
