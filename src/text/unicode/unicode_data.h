// What Unicode says of each character, as sorted runs; the tables behind it are generated.
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
  uint32_t first;  // the run goes on to the next entry's first
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

// Members beyond the general categories that make up most of the property (letters and Nl, Lu, Ll).
std::span<const CodeRange> other_alphabetic();
std::span<const CodeRange> other_uppercase();
std::span<const CodeRange> other_lowercase();

// Every character that simple case folding changes, with what it becomes.
std::span<const CaseFold> case_folds();

// Where the older tables inside of Hugging Face's normalizers and pre-tokenizers have it the other way round: what
// counts as punctuation (P*, ASCII symbols), as a combining mark (M*), for BERT as a nonspacing mark (Mn) or a control
// character (Cc, Cf, Co).
std::span<const CodeRange> punctuation_differences();
std::span<const CodeRange> combining_differences();
std::span<const CodeRange> nonspacing_differences();
std::span<const CodeRange> control_differences();

// Characters too young for their normalizers to decompose.
std::span<const CodeRange> never_decomposed();

}  // namespace millrace
