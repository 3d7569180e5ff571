// Adds a low-rank adapter to the weights that `millrace convert` writes: W + scale B A.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/adapter_packing.h"

namespace millrace {

class AdapterFusion {
 public:
  // An empty path: nothing is added. Throws for an adapter that does not fit, and for one that changes a matrix that is
  // also the embedding table: one tensor cannot hold both.
  AdapterFusion(const std::filesystem::path& path, const Weights& weights, const Model& model);

  bool changes(const std::string& gguf) const { return deltas_.contains(gguf); }
  // The sources of the tensor, stacked along rows, plus the change; in f32, kept in `copy`. `transposed`: the sources
  // are [columns, rows].
  WeightView fused(const std::string& gguf, const std::vector<WeightView>& sources, bool transposed,
                   std::vector<std::byte>& copy, ThreadPool& threads) const;

 private:
  struct Delta {
    const PackedAdapter::Layer* layer;
    LoraWeights::Part part;
    bool embedding;
    int64_t first, rows;  // of the part's B; a tensor of stacked experts has so many rows of each
  };
  PackedAdapter packed_;
  std::map<std::string, Delta> deltas_;  // by the tensor's name in GGUF files
};

}  // namespace millrace
