// Writes keys below an architecture's name, and refuses what they cannot say.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "convert/metadata.h"

namespace millrace {

class ArchitectureKeys {
 public:
  ArchitectureKeys(const ConvertedModel& model, GgufMetadataBuilder& out) : model(model), out_(out) {}

  void count(std::string_view key, int64_t value) { out_.add_u32(full(key), static_cast<uint32_t>(value)); }
  void number(std::string_view key, double value) { out_.add_f32(full(key), static_cast<float>(value)); }
  void flag(std::string_view key, bool value) { out_.add_bool(full(key), value); }
  void flags(std::string_view key, const std::vector<bool>& values) { out_.add_bool_list(full(key), values); }
  void counts(std::string_view key, const std::vector<int32_t>& values) { out_.add_i32_list(full(key), values); }
  void text(std::string_view key, std::string_view value) { out_.add_string(full(key), value); }

  // Values of the folder's config.
  double number_of(std::string_view hf, double usual) const {
    return model.keys().optional_number({.hf = hf}).value_or(usual);
  }
  int64_t count_of(std::string_view hf, int64_t usual) const {
    return model.keys().optional_integer({.hf = hf}).value_or(usual);
  }
  bool flag_of(std::string_view hf, bool usual) const {
    return model.keys().optional_boolean({.hf = hf}).value_or(usual);
  }

  // Throws Unsupported unless `holds`.
  void require(bool holds, std::string_view what) const;

  const ConvertedModel& model;

 private:
  std::string full(std::string_view key) const { return fmt::format("{}.{}", model.architecture, key); }
  GgufMetadataBuilder& out_;
};

struct ArchitectureRule {
  std::string_view gguf;
  void (*keys)(ArchitectureKeys& keys);  // those that no other architecture has
  // Writes what the file has in the place of a declared tensor: other shapes, orders, names. Null: the tensor itself.
  void (*edit)(const ConvertedModel& model, FileTensor tensor, std::vector<FileTensor>& out) = nullptr;
  bool rotates_pairs = false;    // see metadata.h
  bool layer_norm = false;       // LayerNorm instead of RMSNorm
  bool sizes = true;             // false: keys() writes the keys of sizes, heads and norms
  bool rope = true;              // false: there is none, or keys() writes its keys
  bool biases = true;            // llama.cpp reads biases of attention and feed-forward
  bool feed_norm_after = false;  // the norm before the feed-forward is named after the attention before it
  double theta = 10000;          // RoPE base that transformers assumes
};
const ArchitectureRule* find_rule(std::string_view gguf);

double norm_epsilon(const ArchitectureKeys& keys);
void add_layer_sizes(ArchitectureKeys& keys);  // layers, embedding, vocabulary, epsilon of RMSNorm
void add_rope(ArchitectureKeys& keys, const ArchitectureRule& rule);

}  // namespace millrace
