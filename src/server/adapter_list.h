// The adapters of a server's models, by name. They outlive the stay of their model in memory: a model that is loaded
// again brings its adapters back. Any thread may call.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct ServedAdapter {
  std::string name, path;
  size_t model = 0;          // in ModelPool
  bool from_client = false;  // loaded over the API; a model is loaded without it if its file has gone
};

class AdapterList {
 public:
  explicit AdapterList(std::vector<ServedAdapter> adapters);

  void put(ServedAdapter adapter);  // replaces one of this name
  bool remove(std::string_view name);
  std::optional<ServedAdapter> find(std::string_view name) const;
  std::vector<ServedAdapter> all() const;
  std::vector<ServedAdapter> of_model(size_t model) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, ServedAdapter, std::less<>> adapters_;
};

}  // namespace millrace
