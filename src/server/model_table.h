// States and sizes of the models of a server, and which one to unload when memory is short. Plain data without threads
// or clocks: ModelPool locks it and carries out its decisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

class ModelTable {
 public:
  enum class State { Unloaded, Loading, Loaded, Unloading };

  struct Row {
    State state = State::Unloaded;
    int64_t bytes = 0;    // of its memory plan, once that is known
    int leases = 0;       // requests that use it
    uint64_t used = 0;    // order of the last use
    std::string problem;  // why the last load failed; empty: it did not
  };

  explicit ModelTable(size_t models) : rows_(models) {}

  const Row& row(size_t model) const { return rows_[model]; }
  int64_t held() const;  // bytes of loaded models

  // A request wants to use the model. True: it holds a lease and must release() it. False: it must wait. A model that
  // is to be unloaded for another gives no more leases, since steady traffic would keep the other one waiting for ever.
  bool take(size_t model);
  void release(size_t model);

  void begin_load(size_t model);
  // A loading model needs so many bytes, and all models together may have `limit`. Evict: the caller unloads `victim`
  // and calls unloaded(). Wait: all others are in use; ask again after a release.
  enum class Room { Granted, Evict, Wait, TooLarge };
  Room reserve(size_t model, int64_t bytes, int64_t limit, size_t& victim);
  void loaded(size_t model);
  void failed(size_t model, std::string problem);  // empty: given up, for example because no request waits any more
  void unloaded(size_t model);

 private:
  std::vector<Row> rows_;
  std::optional<size_t> leaving_;  // unloaded as soon as its last lease is released
  uint64_t uses_ = 0;
};

}  // namespace millrace
