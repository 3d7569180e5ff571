#include "text/jinja/parse/scope_analysis.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "text/jinja/parse/ast_walk.h"
#include "text/jinja/template_error.h"

namespace millrace::jinja {
namespace {

// The names of one scope. A branch of an `if` belongs to the enclosing scope, but may not run. It gets its own frame on
// top of `base`, and `base` merges it afterwards.
struct Frame {
  const Frame* outer = nullptr;                 // the enclosing scope, complete
  const Frame* base = nullptr;                  // the same scope before the branch
  std::unordered_map<SymbolId, bool> met = {};  // true: assigned before its first read, and unknown outside
  std::unordered_set<SymbolId> stored = {};

  bool knows(SymbolId id) const { return met.count(id) || (base && base->knows(id)); }
  bool stores(SymbolId id) const { return stored.count(id) || (base && base->stores(id)); }
  bool known_outside(SymbolId id) const {
    for (const Frame* frame = outer; frame; frame = frame->outer) {
      if (frame->met.count(id)) return true;
    }
    return false;
  }

  void load(SymbolId id) {
    if (!knows(id) && !known_outside(id)) met[id] = false;
  }
  void store(SymbolId id) {
    stored.insert(id);
    if (!knows(id)) met[id] = !known_outside(id);
  }
  void parameter(SymbolId id) {
    stored.insert(id);
    met[id] = false;
  }

  Frame branch() const { return {.outer = outer, .base = this}; }
  template <size_t N>
  void merge(const std::array<Frame, N>& branches) {
    std::unordered_set<SymbolId> maybe_stored;
    for (const Frame& branch : branches) {
      for (const SymbolId id : branch.stored) {
        if (!stores(id)) maybe_stored.insert(id);
      }
    }
    for (const Frame& branch : branches) {
      for (const auto& [id, hidden] : branch.met) met.insert_or_assign(id, hidden);
      stored.insert(branch.stored.begin(), branch.stored.end());
    }
    // If the branch does not run, the name keeps its outer meaning.
    for (const SymbolId id : maybe_stored) met[id] = false;
  }
};

class Analyzer {
 public:
  explicit Analyzer(SymbolTable& symbols)
      : loop_(symbols.intern("loop")),
        caller_(symbols.intern("caller")),
        kwargs_(symbols.intern("kwargs")),
        varargs_(symbols.intern("varargs")) {}

  // `frame` contains the parameters of the scope already.
  void finish_scope(ScopedBody& body, Frame& frame) {
    collect(body.statements, frame);
    for (const auto& [id, hidden] : frame.met) {
      if (hidden) body.hidden.push_back(id);
    }
    std::sort(body.hidden.begin(), body.hidden.end());
    descend(body.statements, frame);
  }

 private:
  void load(const Expression& expression, Frame& frame) {
    walk_names(expression, [&](SymbolId id, NameRole, int) { frame.load(id); });
  }

  void bind(const Expression& target, NameRole role, Frame& frame) {
    walk_target(target, role, [&](SymbolId id, NameRole found, int) {
      if (found == NameRole::Load) frame.load(id);
      if (found == NameRole::Store) frame.store(id);
      if (found == NameRole::Parameter) frame.parameter(id);
    });
  }

  // Collects the names of the scope that directly contains the statements.
  void collect(const Body& body, Frame& frame) {
    for (const auto& statement : body) collect(*statement, frame);
  }

  void collect(const Statement& statement, Frame& frame) {
    using Kind = Statement::Kind;
    switch (statement.kind) {
      case Kind::Output:
        for (const ExpressionPtr& item : static_cast<const Output&>(statement).expressions) load(*item, frame);
        break;
      case Kind::If:
        collect_if(static_cast<const If&>(statement), frame);
        break;
      case Kind::For:
        load(*static_cast<const For&>(statement).iterable, frame);
        break;
      case Kind::Set:
        load(*static_cast<const Set&>(statement).value, frame);
        bind(*static_cast<const Set&>(statement).target, NameRole::Store, frame);
        break;
      case Kind::SetBlock:
        bind(*static_cast<const SetBlock&>(statement).target, NameRole::Store, frame);
        break;
      case Kind::Macro:
        frame.store(static_cast<const Macro&>(statement).name);
        break;
      case Kind::CallBlock:
        load(*static_cast<const CallBlock&>(statement).call, frame);
        break;
      case Kind::FilterBlock:
        load(*static_cast<const FilterBlock&>(statement).filter, frame);
        break;
      case Kind::With:
        for (const auto& [target, value] : static_cast<const With&>(statement).assignments) load(*value, frame);
        break;
      default:
        break;
    }
  }

  void collect_if(const If& statement, Frame& frame) {
    load(*statement.branches[0].first, frame);
    std::array<Frame, 3> branches = {frame.branch(), frame.branch(), frame.branch()};
    collect(statement.branches[0].second, branches[0]);
    for (size_t i = 1; i < statement.branches.size(); ++i) {
      load(*statement.branches[i].first, branches[1]);
      std::array<Frame, 1> elif = {branches[1].branch()};
      collect(statement.branches[i].second, elif[0]);
      branches[1].merge(elif);
    }
    collect(statement.otherwise, branches[2]);
    frame.merge(branches);
  }

  // Analyzes the scopes inside of the statements.
  void descend(Body& body, const Frame& frame) {
    for (const auto& statement : body) descend(*statement, frame);
  }

  void descend(Statement& statement, const Frame& frame) {
    using Kind = Statement::Kind;
    Frame inner{.outer = &frame};
    switch (statement.kind) {
      case Kind::If:
        for (auto& [test, body] : static_cast<If&>(statement).branches) descend(body, frame);
        descend(static_cast<If&>(statement).otherwise, frame);
        break;
      case Kind::For:
        analyze_loop(static_cast<For&>(statement), frame);
        break;
      case Kind::SetBlock:
        finish_scope(static_cast<SetBlock&>(statement).body, inner);
        break;
      case Kind::Macro:
        analyze_macro(static_cast<Macro&>(statement).signature, static_cast<Macro&>(statement).body, inner);
        break;
      case Kind::CallBlock:
        analyze_macro(static_cast<CallBlock&>(statement).signature, static_cast<CallBlock&>(statement).body, inner);
        break;
      case Kind::FilterBlock:
        finish_scope(static_cast<FilterBlock&>(statement).body, inner);
        break;
      case Kind::With:
        for (const auto& [target, value] : static_cast<With&>(statement).assignments) {
          bind(*target, NameRole::Parameter, inner);
        }
        finish_scope(static_cast<With&>(statement).body, inner);
        break;
      case Kind::Generation:
        finish_scope(static_cast<Generation&>(statement).body, inner);
        break;
      case Kind::Block: {
        Frame apart;
        finish_scope(static_cast<Block&>(statement).body, apart);
        break;
      }
      default:
        break;
    }
  }

  void analyze_loop(For& loop, const Frame& frame) {
    walk_names(loop, [&](SymbolId id, NameRole role, int line) {
      if (id == loop_ && role == NameRole::Store) {
        fail_template_at(line, "Can't assign to special loop variable in for-loop target");
      }
    });
    loop.uses_loop = loop.recursive || reads(loop.body.statements, loop_);
    Frame inner{.outer = &frame};
    if (loop.uses_loop) inner.parameter(loop_);
    bind(*loop.target, NameRole::Parameter, inner);
    finish_scope(loop.body, inner);
    Frame otherwise{.outer = &frame};
    finish_scope(loop.otherwise, otherwise);
  }

  void analyze_macro(Signature& signature, ScopedBody& body, Frame& frame) {
    const auto is_parameter = [&](SymbolId id) {
      return std::find(signature.parameters.begin(), signature.parameters.end(), id) != signature.parameters.end();
    };
    signature.uses_caller = reads(body.statements, caller_);
    signature.uses_kwargs = reads(body.statements, kwargs_) && !is_parameter(kwargs_);
    signature.uses_varargs = reads(body.statements, varargs_) && !is_parameter(varargs_);
    for (const SymbolId id : signature.parameters) frame.parameter(id);
    if (signature.uses_caller) frame.parameter(caller_);
    if (signature.uses_kwargs) frame.parameter(kwargs_);
    if (signature.uses_varargs) frame.parameter(varargs_);
    for (const ExpressionPtr& value : signature.defaults) load(*value, frame);
    finish_scope(body, frame);
  }

  // True if the body, or anything inside of it, reads the name before assigning it.
  static bool reads(const Body& body, SymbolId wanted) {
    bool read = false, assigned = false;
    walk_names(body, [&](SymbolId id, NameRole role, int) {
      if (id != wanted) return;
      if (role == NameRole::Load) {
        read |= !assigned;
      } else {
        assigned = true;
      }
    });
    return read;
  }

  const SymbolId loop_, caller_, kwargs_, varargs_;
};

}  // namespace

void analyze_scopes(Template& parsed) {
  Frame root;
  Analyzer(parsed.symbols).finish_scope(parsed.body, root);
}

}  // namespace millrace::jinja
