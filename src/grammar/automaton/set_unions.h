// Unions of the sets that a rule can begin with. A grammar may have \s and \S as separate sets of which both can
// follow; token sets work best for their union.
#pragma once

#include <vector>

#include "grammar/rules.h"

namespace millrace {

// The distinct unions of rules that begin with several sets. A large grammar is searched in part.
std::vector<CodeSet> united_first_sets(const GrammarRules& rules);

}  // namespace millrace
