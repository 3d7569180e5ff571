// Branches of drafts (draft_branch.h): their pages, what they draft, and which of them the sequence goes on with.
#include <algorithm>

#include "engine/scheduler.h"

namespace millrace {

bool Scheduler::may_branch(const Sequence& s) const { return limits_.draft_width > 1 && !s.branches().empty(); }

std::span<const int32_t> Scheduler::alternatives(const Sequence& s) const {
  if (!may_branch(s)) return {};
  const auto named = limits_.drafter->alternatives(draft_key(s), s.tokens().size());
  const auto most = std::min<size_t>({named.size(), s.branches().size(), static_cast<size_t>(limits_.draft_width - 1)});
  return named.first(most);
}

// The places of a step that running sequences leave: buffers and plans know no more slices.
int64_t Scheduler::branch_places() const { return std::max<int64_t>(0, limits_.places - std::ssize(running_)); }

// Asks for the branches that the plan wants beside the drafts. Each takes its pages without preemption.
void Scheduler::ask_for_branches() {
  const auto wanted = draft_plan_.branches();
  for (size_t i = 0; i < wanted.size(); ++i) {
    Sequence& s = *drafting_[i];
    const int32_t drafts = asks_[i].given;
    for (int32_t number = 0; drafts > 0 && number < wanted[i]; ++number) {
      DraftBranch& branch = s.branches()[static_cast<size_t>(number)];
      if (!open_branch(s, branch, drafts)) break;
      const auto buffer = draft_buffer().first(static_cast<size_t>(drafts));
      asks_.push_back({draft_key(s), s.tokens(), buffer, drafts, branch.table.pages(), number + 1});
      drafting_.push_back(&s);
    }
  }
}

// The branch computes the last known token again.
bool Scheduler::open_branch(const Sequence& s, DraftBranch& branch, int32_t drafts) {
  const int32_t past = s.length() - 1, tokens = s.length() + drafts;
  return make_room(s.table().pages_for(tokens) - past / kv_.options().block_size) &&
         fork_pages(kv_, s.table(), past, tokens, branch.table);
}

void Scheduler::add_branches(Part& part, StepBatch& batch) {
  Sequence& s = *part.sequence;
  for (DraftBranch& branch : s.branches()) {
    if (branch.rows() == 0) continue;
    branch.row = part.rows + part.branch_rows;
    part.branch_rows += branch.rows();
    batch.add(branch.tokens, s.computed(), s.length(), branch.table.pages(), {0, branch.rows()}, {}, /*slot=*/-1,
              /*drafts=*/true, s.request().second, s.adapter());
  }
}

int32_t Scheduler::choose_branch(Sequence& s, int32_t token) {
  if (s.drafted() > 0 && token != s.next_draft()) s.draft_history.record_others(alternatives(s), token);
  return s.choose_branch(token);
}

}  // namespace millrace
