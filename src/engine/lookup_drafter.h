// Drafts by look-up: finds the last tokens earlier in the sequence and proposes the tokens that followed them there.
// Needs no model. Pays where answers repeat their prompt or themselves: edits of code, summaries, lists.
#pragma once

#include "engine/drafter.h"

namespace millrace {

class LookupDrafter final : public SequenceDrafter {
 public:
  int32_t draft(std::span<const int32_t> tokens, std::span<int32_t> draft) override;
  int32_t most_tokens() const override { return 15; }  // with the token before them, a bucket of 16 rows
};

}  // namespace millrace
