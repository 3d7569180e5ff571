// Responses that clients continue with previous_response_id or read again. They are kept in memory; the least recently
// used one is dropped first. Only the holder of the API key that made a response finds it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "server/requests/json.h"

namespace millrace {

struct StoredLimits {
  size_t responses = 1024;
  size_t bytes = size_t{64} << 20;  // of JSON text, including earlier turns that only later ones refer to
  size_t turns = 1000;              // of one conversation
};

// One response and its input. Earlier turns are shared by all responses that continue them.
struct StoredTurn {
  std::string owner;            // name of the API key
  std::string input, response;  // JSON text; `input` is an array of items
  std::shared_ptr<const StoredTurn> previous = nullptr;
  size_t turns = 1;  // of the conversation so far
};

class StoredResponses {
 public:
  explicit StoredResponses(StoredLimits limits = {}) : limits_(limits) {}
  StoredResponses(const StoredResponses&) = delete;

  void add(const std::string& id, StoredTurn turn);
  std::shared_ptr<const StoredTurn> find(const std::string& id, const std::string& owner);  // null: none
  bool forget(const std::string& id, const std::string& owner);  // later turns keep what they refer to

  // The turn that a request continues. Throws ApiError 400.
  std::shared_ptr<const StoredTurn> previous(const std::string& id, const std::string& owner);

  size_t size();
  size_t bytes() const { return *bytes_; }

 private:
  struct Entry {
    std::shared_ptr<const StoredTurn> turn;
    uint64_t used = 0;
  };

  const StoredLimits limits_;
  const std::shared_ptr<std::atomic<size_t>> bytes_ = std::make_shared<std::atomic<size_t>>(0);  // of all living turns
  std::mutex mutex_;
  uint64_t clock_ = 0;
  std::map<std::string, Entry> entries_;
};

// The items of a request's input as a list: text is a user's message, and every item has an id.
Json listed_input(const Json& input);

// The items before `turn`'s answer; with its answer, what the next request continues.
Json items_before_answer(const StoredTurn& turn);
Json items_with_answer(const StoredTurn& turn);

}  // namespace millrace
