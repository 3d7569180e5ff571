// Drops the oldest messages of a conversation that is too long, for "truncation": "auto".
#pragma once

#include <cstddef>
#include <vector>

#include "server/chat_prompt.h"
#include "server/requests/json.h"

namespace millrace {

// The ways to shorten a conversation, from the longest rest to the shortest. The rest begins with a user's message.
// Once only the last of these is left, the oldest calls behind it go together with their results. System messages stay.
class ConversationCuts {
 public:
  explicit ConversationCuts(const Json& messages);

  size_t count() const { return cuts_.size(); }
  Json shortened(size_t cut) const;

 private:
  struct Cut {
    size_t start;   // the first message of the rest
    size_t resume;  // between `start` and this one nothing is kept; 0: everything is
  };

  const Json& messages_;
  std::vector<Cut> cuts_;
};

// The prompt of the longest rest that leaves room for the answer. `request.messages` becomes that rest. Returns the
// shortest rest if none fits.
ChatPrompt prompt_cut_to_fit(ChatRequest& request, const ServedModel& model);

}  // namespace millrace
