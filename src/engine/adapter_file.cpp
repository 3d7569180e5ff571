#include "engine/adapter_file.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "engine/adapter_experts.h"
#include "formats/gguf_reader.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "kernels/lora/lora.h"
#include "text/regex/regex.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kLargestConfig = 4u << 20;

[[noreturn]] void refuse(const std::string& origin, const std::string& what) {
  fail(ErrorKind::Unsupported, "{}: adapters with {} are not supported", origin, what);
}

// adapter_config.json of PEFT.
class PeftConfig {
 public:
  PeftConfig(std::string_view text, std::string origin)
      : origin_(std::move(origin)), config_(parse_json(text, origin_)) {
    if (!config_.is_object()) fail(ErrorKind::BadFile, "{}: is not a JSON object", origin_);
    const json type = config_.value("peft_type", json("LORA"));
    if (type != "LORA") refuse(origin_, fmt::format("peft_type {}", type.dump()));
    for (const char* key : {"use_dora", "lora_bias", "use_qalora"}) {
      if (boolean(key)) refuse(origin_, fmt::format("{}: true", key));
    }
    for (const char* key : {"modules_to_save", "trainable_token_indices", "layer_replication",
                            "alora_invocation_tokens", "arrow_config"}) {
      if (const json* value = find(key); value != nullptr && !value->empty())
        refuse(origin_, fmt::format("{} ({:.80})", key, value->dump()));
    }
    check_beginning();
    if (const json* bias = find("bias"); bias != nullptr && *bias != "none")
      refuse(origin_, fmt::format("bias {:.80}", bias->dump()));
    if (const json* target = find("target_modules"); target != nullptr && !target->is_string() && !target->is_array())
      fail(ErrorKind::BadFile, "{}: target_modules is neither a list nor a pattern", origin_);
    if (const json* targets = find("target_parameters")) {
      const auto is_text = [](const json& target) { return target.is_string(); };
      if (!targets->is_array() || !std::all_of(targets->begin(), targets->end(), is_text))
        fail(ErrorKind::BadFile, "{}: target_parameters is no list of names", origin_);
      target_parameters_ = targets->get<std::vector<std::string>>();
    }
    const json version = config_.value("peft_version", json());
    is_old_ = !version.is_string() || is_before_0_19_1(version.get<std::string>());
    rslora_ = boolean("use_rslora");
    rank_ = rank(config_.value("r", json()), "r");
    alpha_ = number(config_.value("lora_alpha", json()), "lora_alpha");
    const nlohmann::ordered_json ordered = read_ordered_json(text);  // the first pattern that matches holds
    const auto ranks = patterns(ordered, "rank_pattern"), alphas = patterns(ordered, "alpha_pattern");
    for (const auto& [key, value] : ranks.items()) ranks_.push_back({matcher(key), double(rank(value, key))});
    for (const auto& [key, value] : alphas.items()) alphas_.push_back({matcher(key), number(value, key)});
  }

  // `module`: as PEFT names it, without "base_model.model.". `stacked`: the pair has the ranks of all experts.
  void settle(const std::string& module, bool stacked, AdapterPair& pair) const {
    const int64_t expected = static_cast<int64_t>(first_match(ranks_, module, double(rank_)));
    if (stacked ? pair.rank % expected != 0 : pair.rank != expected) {
      fail(ErrorKind::BadFile, "{}: '{}' has rank {}, adapter_config.json says {}", origin_, module, pair.rank,
           expected);
    }
    if (stacked) pair.experts = pair.rank / expected;
    pair.is_old_stack = stacked && is_old_;
    pair.rank = expected;
    const double alpha = first_match(alphas_, module, alpha_), rank = double(pair.rank);
    pair.scale = alpha / (rslora_ ? std::sqrt(rank) : rank);
  }

  const std::vector<std::string>& target_parameters() const { return target_parameters_; }

  // PEFT knows a matrix that target_parameters names by the parameter, for its patterns too.
  std::string known_as(const std::string& module) const {
    const std::string parameter = module + ".weight";
    const auto names = [&](const std::string& target) {
      return parameter == target || parameter.ends_with("." + target);
    };
    const bool named = std::any_of(target_parameters_.begin(), target_parameters_.end(), names);
    return named ? parameter : module;
  }

 private:
  // Some initial values of A and B are taken out of the model's own weights.
  void check_beginning() const {
    const json* value = find("init_lora_weights");
    if (value == nullptr || value->is_boolean()) return;
    for (const char* plain : {"gaussian", "orthogonal", "eva"}) {
      if (*value == plain) return;
    }
    refuse(origin_, fmt::format("init_lora_weights {:.80}, which change the model's own weights, too", value->dump()));
  }

  struct Rule {
    Regex matches;
    double value;
  };

  const json* find(std::string_view key) const {
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }
  bool boolean(const char* key) const {
    const json* value = find(key);
    if (value != nullptr && !value->is_boolean()) fail(ErrorKind::BadFile, "{}: {} is not a boolean", origin_, key);
    return value != nullptr && value->get<bool>();
  }
  template <class Json>
  double number(const Json& value, std::string_view key) const {
    if (!value.is_number() || !std::isfinite(value.template get<double>()))
      fail(ErrorKind::BadFile, "{}: {} is missing or not a number", origin_, key);
    return value.template get<double>();
  }
  template <class Json>
  int64_t rank(const Json& value, std::string_view key) const {
    const double r = number(value, key);
    if (r != std::floor(r) || r < 1 || r > double(LoraWeights::kMostRank))
      fail(ErrorKind::Unsupported, "{}: rank {} ({}): from 1 to {} are supported", origin_, r, key,
           LoraWeights::kMostRank);
    return static_cast<int64_t>(r);
  }
  nlohmann::ordered_json patterns(const nlohmann::ordered_json& config, const char* key) const {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return nlohmann::ordered_json::object();
    if (!found->is_object()) fail(ErrorKind::BadFile, "{}: {} is not an object", origin_, key);
    return *found;
  }
  // PEFT matches the end of a module's name, from the beginning of one of its parts on.
  Regex matcher(const std::string& key) const {
    try {
      return Regex("\\A(?:.*\\.)?(?:" + key + ")\\z");
    } catch (const Error& e) {
      fail(e.kind(), "{}: a pattern of a rank or alpha: {}", origin_, e.what());
    }
  }
  static double first_match(const std::vector<Rule>& rules, const std::string& module, double usual) {
    for (const Rule& rule : rules) {
      bool matches = false;
      rule.matches.find_all(module, [&](size_t, size_t) { matches = true; });
      if (matches) return rule.value;
    }
    return usual;
  }

  std::string origin_;
  json config_;
  bool rslora_ = false, is_old_ = false;
  int64_t rank_ = 0;
  double alpha_ = 0;
  std::vector<Rule> ranks_, alphas_;
  std::vector<std::string> target_parameters_;
};

using Pairs = std::map<std::string, AdapterPair>;  // by the module's full name

// The rank that both matrices agree on. In GGUF files those of experts are stacked.
void check_pair(const std::string& origin, const std::string& module, AdapterPair& pair) {
  if (pair.a.name.empty() || pair.b.name.empty())
    fail(ErrorKind::BadFile, "{}: '{}' has only one of its two matrices", origin, module);
  for (const TensorInfo* tensor : {&pair.a, &pair.b}) {
    if (!tensor->dtype) fail(ErrorKind::Unsupported, "{}: '{}' is in {}", origin, tensor->name, tensor->dtype_name);
    const size_t dimensions = module.ends_with("_exps.weight") ? 3 : 2;
    if (tensor->shape.size() != dimensions || tensor->shape.back() % info(*tensor->dtype).block != 0)
      fail(ErrorKind::BadFile, "{}: '{}' has the shape {}", origin, tensor->name, to_string(tensor->shape));
  }
  const std::vector<int64_t>&a = pair.a.shape, &b = pair.b.shape;
  if (b.size() == 3) {
    pair.experts = b[0];
    if (a[0] != b[0])
      fail(ErrorKind::BadFile, "{}: the matrices of '{}' are for {} and {} experts", origin, module, a[0], b[0]);
  }
  pair.rank = b.back();
  const bool by_token = pair.embedding && pair.a.name.ends_with(".lora_a");
  const int64_t other = by_token ? a[1] : a[a.size() - 2];
  if (pair.rank != other)
    fail(ErrorKind::BadFile, "{}: the matrices of '{}' have the ranks {} and {}", origin, module, other, pair.rank);
}

void check_rank(const std::string& origin, const std::string& module, int64_t rank) {
  if (rank < 1 || rank > LoraWeights::kMostRank)
    fail(ErrorKind::Unsupported, "{}: rank {} ('{}'): from 1 to {} are supported", origin, rank, module,
         LoraWeights::kMostRank);
}

// Puts a tensor into its pair if its name ends like one of a pair. `mark`: where the module's name ends.
bool take(const TensorInfo& tensor, std::string_view mark, bool is_a, bool embedding, Pairs& pairs) {
  if (!tensor.name.ends_with(mark)) return false;
  AdapterPair& pair = pairs[tensor.name.substr(0, tensor.name.size() - mark.size())];
  pair.embedding = embedding;
  (is_a ? pair.a : pair.b) = tensor;
  return true;
}

AdapterFile read_peft(const fs::path& folder) {
  AdapterFile file{.origin = folder.string()};
  const fs::path config_path = folder / "adapter_config.json", weights = folder / "adapter_model.safetensors";
  std::error_code error;
  if (!fs::is_regular_file(config_path, error))
    fail(ErrorKind::NotFound, "{}: has no adapter_config.json", folder.string());
  if (!fs::is_regular_file(weights, error))
    fail(ErrorKind::NotFound, "{}: has no adapter_model.safetensors", folder.string());
  const MappedFile text(config_path);
  if (text.bytes().size() > kLargestConfig)
    fail(ErrorKind::BadFile, "{}: larger than {} bytes", config_path.string(), kLargestConfig);
  const PeftConfig config({reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size()},
                          config_path.string());
  const MappedFile& mapped = file.files.emplace_back(weights);
  Pairs pairs;
  std::vector<std::string> bases;  // matrices of the model that PEFT saves beside an embedding's pair
  for (const TensorInfo& tensor : read_safetensors(mapped.bytes(), weights.string())) {
    constexpr std::string_view kBase = ".base_layer.weight";
    if (tensor.name.ends_with(kBase)) {
      bases.push_back(tensor.name.substr(0, tensor.name.size() - kBase.size()));
      continue;
    }
    const bool known =
        take(tensor, ".lora_A.weight", true, false, pairs) || take(tensor, ".lora_B.weight", false, false, pairs) ||
        take(tensor, ".lora_embedding_A", true, true, pairs) || take(tensor, ".lora_embedding_B", false, true, pairs);
    if (!known) refuse(weights.string(), fmt::format("the tensor '{:.200}'", tensor.name));
  }
  for (const std::string& base : bases) {
    if (!pairs.contains(base)) refuse(weights.string(), fmt::format("the base weights of '{:.200}'", base));
  }
  constexpr std::string_view kPrefix = "base_model.model.";
  for (auto& [name, pair] : pairs) {
    check_pair(weights.string(), name, pair);
    const std::string module = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
    const auto parameter = expert_parameter(module, config.target_parameters(), config_path.string());
    config.settle(parameter ? *parameter : config.known_as(module), parameter.has_value(), pair);
    check_rank(weights.string(), name, pair.rank);
    const ExpertModule named = expert_module(plain_module(parameter.value_or(module)));
    pair.module = named.module;
    pair.expert = named.expert;
    file.pairs.push_back(std::move(pair));
  }
  return file;
}

AdapterFile read_gguf_adapter(const fs::path& path) {
  AdapterFile file{.origin = path.string(), .convention = WeightSource::Convention::Gguf};
  const MappedFile& mapped = file.files.emplace_back(path);
  const GgufContents contents = read_gguf(mapped.bytes(), path.string());
  const GgufMetadata& keys = contents.metadata;
  if (keys.string("general.type").value_or("") != "adapter")
    fail(ErrorKind::Usage, "{}: is not an adapter (general.type is not 'adapter')", path.string());
  if (const auto type = keys.string("adapter.type").value_or(""); type != "lora")
    refuse(path.string(), fmt::format("adapter.type '{:.80}'", type));
  if (keys.find("adapter.alora.invocation_tokens") != nullptr) refuse(path.string(), "invocation tokens (aLoRA)");
  file.architecture = keys.string("general.architecture").value_or("");
  const double alpha = keys.number("adapter.lora.alpha").value_or(0);
  if (!std::isfinite(alpha)) fail(ErrorKind::BadFile, "{}: adapter.lora.alpha is not a number", path.string());
  Pairs pairs;
  for (const TensorInfo& tensor : contents.tensors) {
    const bool embedding = tensor.name.starts_with("token_embd.");
    if (!take(tensor, ".lora_a", true, embedding, pairs) && !take(tensor, ".lora_b", false, embedding, pairs))
      refuse(path.string(), fmt::format("the tensor '{:.200}'", tensor.name));
  }
  for (auto& [name, pair] : pairs) {
    check_pair(path.string(), name, pair);
    check_rank(path.string(), name, pair.rank);
    pair.scale = alpha == 0 ? 1 : alpha / double(pair.rank);  // as llama.cpp
    pair.module = name;
    file.pairs.push_back(std::move(pair));
  }
  return file;
}

}  // namespace

namespace {

// The modules of ChatGLM's own code as transformers names them.
void rename_chatglm(std::string& name) {
  if (name == "embedding.word_embeddings") name = "embed_tokens";
  if (name == "output_layer") name = "lm_head";
  constexpr std::string_view kEncoder = "encoder.";
  if (!name.starts_with("encoder.layers.")) return;
  name.erase(0, kEncoder.size());
  const std::pair<std::string_view, std::string_view> renamed[] = {
      {".self_attention.query_key_value", ".self_attn.qkv_proj"},
      {".self_attention.dense", ".self_attn.o_proj"},
      {".mlp.dense_h_to_4h", ".mlp.gate_up_proj"},
      {".mlp.dense_4h_to_h", ".mlp.down_proj"}};
  for (const auto& [own, usual] : renamed) {
    if (name.ends_with(own)) name.replace(name.size() - own.size(), own.size(), usual);
  }
}

}  // namespace

std::string plain_module(std::string_view name) {
  if (constexpr std::string_view kPrefix = "base_model.model."; name.starts_with(kPrefix))
    name.remove_prefix(kPrefix.size());
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"model.", "language_model.", "transformer.", "backbone."}) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      again = true;
    }
  }
  std::string plain(name);
  rename_chatglm(plain);
  const std::pair<std::string_view, std::string_view> usual[] = {{".block_sparse_moe.", ".mlp."},
                                                                 {".shared_expert.", ".shared_experts."}};
  for (const auto& [from, to] : usual) {
    if (const auto at = plain.find(from); at != plain.npos) plain.replace(at, from.size(), to);
  }
  for (const std::string_view router : {".mlp.router.layer", ".mlp.router", ".feed_forward.gate", ".mixer.gate"}) {
    if (plain.ends_with(router)) plain.replace(plain.size() - router.size(), router.size(), ".mlp.gate");
  }
  return plain;
}

AdapterFile read_adapter(const fs::path& path) {
  std::error_code error;
  AdapterFile file = fs::is_directory(path, error) ? read_peft(path) : read_gguf_adapter(path);
  if (file.pairs.empty()) fail(ErrorKind::BadFile, "{}: has no tensors", file.origin);
  return file;
}

}  // namespace millrace
