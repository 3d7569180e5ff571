#include "server/agent_sessions.h"

#include <algorithm>

#include "engine/adapters.h"
#include "server/answer_json.h"

namespace millrace {
namespace {

constexpr size_t kSessionsOfAll = 4096, kTokensOfAll = size_t(1) << 24;

// A prompt may end with tokens that its answer replaces later, such as an opened thought. The end of a message and the
// head of the answer, which two different prompts have in common, are longer.
constexpr size_t kMayDiffer = 4;

uint64_t hash_on(uint64_t hash, int32_t token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 32);
}

// [n]: of the first n tokens.
std::vector<uint64_t> hashes_of(std::span<const int32_t> tokens) {
  std::vector<uint64_t> hashes{1};
  hashes.reserve(tokens.size() + 1);
  for (const int32_t token : tokens) hashes.push_back(hash_on(hashes.back(), token));
  return hashes;
}

size_t in_common(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

void SessionLedger::add(const Usage& usage) {
  ++requests;
  prompt_tokens += usage.prompt_tokens;
  cached_tokens += usage.cached_tokens;
  completion_tokens += usage.completion_tokens;
  queued_ms += usage.queued_ms;
  compute_ms += usage.compute_ms;
  if (usage.joules) joules = joules.value_or(0) + *usage.joules;
}

std::list<AgentSessions::Kept>::iterator AgentSessions::find(uint64_t number) {
  return std::ranges::find(sessions_, number, &Kept::number);
}

uint64_t AgentSessions::begin(const Who& who, std::span<const int32_t> prompt) {
  const std::lock_guard lock(mutex_);
  auto best = sessions_.end();
  if (!sessions_.empty()) {
    const auto hashes = hashes_of(prompt);
    size_t most = 0;
    for (auto at = sessions_.begin(); at != sessions_.end(); ++at) {
      const Session& s = at->session;
      if (s.client != who.client || s.owner != who.owner || s.adapter != who.adapter) continue;
      if (!who.id.empty()) {
        if (s.id == who.id) best = at;
        continue;
      }
      // A prompt that is not longer begins the same conversation again.
      if (at->must_agree + kMayDiffer >= prompt.size() || hashes[at->must_agree] != at->hash) continue;
      const size_t common = in_common(s.tokens, prompt);
      if (common < at->must_agree || common <= most) continue;
      most = common;
      best = at;
    }
  }
  if (best == sessions_.end()) return 0;
  ++best->session.running;
  best->used = Clock::now();
  sessions_.splice(sessions_.begin(), sessions_, best);
  return best->number;
}

std::optional<SessionLedger> AgentSessions::end(const Who& who, uint64_t session, const Usage& usage,
                                                std::vector<int32_t> tokens, size_t prompt, bool waits,
                                                std::vector<int32_t>& before) {
  const std::lock_guard lock(mutex_);
  auto at = find(session);
  if (at == sessions_.end()) {
    if (!waits && who.id.empty()) return std::nullopt;
    Kept fresh;
    fresh.number = ++last_;
    fresh.session.id = who.id.empty() ? make_id("session_") : who.id;
    fresh.session.owner = who.owner;
    fresh.session.client = who.client;
    fresh.session.adapter = who.adapter;
    sessions_.push_front(std::move(fresh));
    at = sessions_.begin();
  } else {
    at->session.running = std::max(0, at->session.running - 1);
    sessions_.splice(sessions_.begin(), sessions_, at);
  }
  Session& s = at->session;
  before = std::move(s.tokens);
  tokens_ += tokens.size() - before.size();
  at->must_agree = prompt > kMayDiffer ? prompt - kMayDiffer : prompt;
  at->hash = hashes_of(std::span(tokens).first(at->must_agree)).back();
  s.tokens = std::move(tokens);
  s.waits = waits;
  s.ledger.id = s.id;
  s.ledger.add(usage);
  at->used = Clock::now();
  const SessionLedger ledger = s.ledger;
  trim();
  return ledger;
}

void AgentSessions::abandon(uint64_t session, const Usage& usage) {
  const std::lock_guard lock(mutex_);
  const auto at = find(session);
  if (at == sessions_.end()) return;
  at->session.running = std::max(0, at->session.running - 1);
  if (usage.compute_ms > 0) at->session.ledger.add(usage);
  at->used = Clock::now();
}

void AgentSessions::trim() {
  while (sessions_.size() > 1 && (sessions_.size() > kSessionsOfAll || tokens_ > kTokensOfAll)) {
    tokens_ -= sessions_.back().session.tokens.size();
    sessions_.pop_back();
  }
}

std::vector<AgentSessions::Session> AgentSessions::list(const std::string& owner, size_t most) const {
  const std::lock_guard lock(mutex_);
  std::vector<Session> found;
  for (const Kept& kept : sessions_) {
    if (found.size() == most) break;
    if (kept.session.owner != owner) continue;
    found.push_back(kept.session);
    found.back().idle_seconds = std::chrono::duration<double>(Clock::now() - kept.used).count();
  }
  return found;
}

}  // namespace millrace
