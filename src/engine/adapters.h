// The low-rank adapters of a loaded model, by name. A request holds its adapter, so an adapter that is unloaded stays
// in memory until its last request has ended.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/adapter_packing.h"
#include "hardware/device.h"
#include "tensor/arena.h"

namespace millrace {

struct Adapter {
  std::string name, origin;
  // Identifies the adapter in the prefix cache: another one that is loaded later under the same name differs.
  std::string key;
  int32_t slot = -1;  // in AdapterTable
  int64_t rank = 0;   // the largest of its layers
  size_t bytes = 0;   // of device memory
  struct Site {
    int site = 0;
    int64_t rank = 0;  // sum over the parts
  };
  std::vector<Site> sites;
  std::unique_ptr<Arena> memory;
};

class Adapters {
 public:
  // `enabled`: steps are planned for adapters.
  Adapters(Device& device, bool enabled, size_t sites, DType format);
  // Plans steps for the layers that `adapters` change and for no others; read() then refuses adapters of other layers.
  void expect_only(std::span<const std::pair<std::string, PackedAdapter>> adapters);

  // What the ops read; null if adapters are not enabled.
  const AdapterTable* table() const { return enabled_ ? &table_ : nullptr; }
  static size_t table_bytes(size_t sites);
  void allocate();  // the table, once the memory plan was checked

  // Any thread may read and pack an adapter. It is placed between two steps, on the thread that runs them. Both throw.
  PackedAdapter read(const std::filesystem::path& path, const Weights& weights, const Model& model) const;
  void place(const std::string& name, const PackedAdapter& packed);
  // Frees the adapters that no name and no request holds. Call between steps.
  void free_unused();

  // Any thread.
  std::shared_ptr<const Adapter> find(std::string_view name) const;  // null: none
  bool remove(const std::string& name);                              // later requests do not find it; false: unknown
  std::vector<std::shared_ptr<const Adapter>> all() const;           // by name

  // Changes when other layers than before have adapters, or of other ranks. Recorded steps of another version are not
  // replayed.
  int64_t version() const { return version_; }

 private:
  void write(int site, int32_t slot, const LoraWeights& weights);
  void update_ranks();
  int32_t free_slot() const;

  Device& device_;
  const bool enabled_;
  AdapterTable table_;
  std::unique_ptr<Arena> table_memory_;
  int64_t version_ = 1;
  uint64_t placed_ = 0;
  std::vector<std::shared_ptr<const Adapter>> resident_;  // of the thread that runs the steps
  mutable std::mutex mutex_;                              // guards the names
  std::map<std::string, std::shared_ptr<const Adapter>, std::less<>> names_;
};

}  // namespace millrace
