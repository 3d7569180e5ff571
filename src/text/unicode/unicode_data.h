// Unicode character data as sorted runs. The tables are generated.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string_view>

namespace millrace {

enum class Category : uint8_t {
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Co,
  Cs,
  Cn
};
inline constexpr int kCategoryCount = 30;

struct CategoryRun {
  uint32_t first;  // the run ends before the next entry's first
  Category category;
};
struct ScriptRun {
  uint32_t first;
  uint8_t script;  // an index into script_names(); 0: unknown
};
struct CodeRange {
  uint32_t first, last;  // inclusive
  auto operator<=>(const CodeRange&) const = default;
};
struct CaseFold {
  uint32_t code, folded;
};

std::span<const CategoryRun> category_runs();
std::span<const ScriptRun> script_runs();
std::span<const std::string_view> script_names();  // in lower case, without underscores

// Members beyond the general categories that make up most of each property (letters and Nl, Lu, Ll).
std::span<const CodeRange> other_alphabetic();
std::span<const CodeRange> other_uppercase();
std::span<const CodeRange> other_lowercase();

// Every character that simple case folding changes, with its folded form.
std::span<const CaseFold> case_folds();

// Characters whose membership differs in the older tables of Hugging Face's normalizers and pre-tokenizers: punctuation
// (P*, ASCII symbols), combining marks (M*), and for BERT nonspacing marks (Mn) and control characters (Cc, Cf, Co).
std::span<const CodeRange> punctuation_differences();
std::span<const CodeRange> combining_differences();
std::span<const CodeRange> nonspacing_differences();
std::span<const CodeRange> control_differences();

// Characters that are newer than their normalizers, which do not decompose them.
std::span<const CodeRange> never_decomposed();

}  // namespace millrace
