#include "server/conversation_cut.h"

#include <algorithm>

namespace millrace {
namespace {

bool has_role(const Json& message, const char* role) { return message["role"] == role; }

bool is_system(const Json& message) { return has_role(message, "system") || has_role(message, "developer"); }

}  // namespace

ConversationCuts::ConversationCuts(const Json& messages) : messages_(messages) {
  size_t last = messages.size();
  bool first = true;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!has_role(messages[i], "user")) continue;
    last = i;
    if (!std::exchange(first, false) || (i > 0 && !is_system(messages[i - 1]))) cuts_.push_back({i, 0});
  }
  first = true;
  for (size_t i = last + 1; i < messages.size(); ++i) {
    if (!has_role(messages[i], "assistant")) continue;
    if (!std::exchange(first, false)) cuts_.push_back({last, i});
  }
}

Json ConversationCuts::shortened(size_t cut) const {
  const auto [start, resume] = cuts_[cut];
  Json rest = Json::array();
  for (size_t i = 0; i < messages_.size(); ++i) {
    const bool kept = i == start || (i > start && i >= resume);
    if (kept || is_system(messages_[i])) rest.push_back(messages_[i]);
  }
  return rest;
}

ChatPrompt prompt_cut_to_fit(ChatRequest& request, const ServedModel& model) {
  constexpr int64_t kRoom = 1024;  // for an answer without a limit, or a quarter of a small context
  const int64_t context = model.context();
  const auto fits = [&](const ChatPrompt& prompt, int64_t unlimited) {
    const int64_t room = request.max_completion_tokens ? *request.max_completion_tokens : unlimited;
    return static_cast<int64_t>(prompt.tokens.size()) + room <= context;
  };
  ChatPrompt best = make_chat_prompt(request, model);
  if (fits(best, 1)) return best;
  const Json whole = request.messages;
  const ConversationCuts cuts(whole);
  size_t low = 0, high = cuts.count();  // cuts below `low` are too long
  while (low < high) {
    const size_t middle = (low + high) / 2;
    request.messages = cuts.shortened(middle);
    best = make_chat_prompt(request, model);
    if (fits(best, std::min(kRoom, context / 4))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (cuts.count() == 0) return best;
  request.messages = cuts.shortened(std::min(low, cuts.count() - 1));
  return make_chat_prompt(request, model);
}

}  // namespace millrace
