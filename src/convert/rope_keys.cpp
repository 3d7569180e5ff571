// RoPE in GGUF files: keys for linear and YaRN scaling, tensors of divisors for llama3 and longrope.
#include <cmath>
#include <numbers>

#include "base/log.h"
#include "convert/architecture_keys.h"
#include "models/gemma4_layers.h"

namespace millrace {
namespace {

// The config's rope_parameters.
class RopeSettings {
 public:
  explicit RopeSettings(const ConvertedModel& model) : keys_(model.keys()), prefix_("rope_parameters.") {
    if (keys_.has({.hf = "rope_parameters.full_attention"})) prefix_ += "full_attention.";  // layers without window
  }

  std::string type() const { return keys_.optional_string({.hf = prefix_ + "rope_type"}).value_or("default"); }
  std::optional<double> number(const std::string& key) const { return keys_.optional_number({.hf = prefix_ + key}); }
  std::vector<float> numbers(const std::string& key) const {
    const auto values = keys_.array<double>({.hf = prefix_ + key});
    return {values.begin(), values.end()};
  }
  bool flag(const std::string& key, bool usual) const {
    return keys_.optional_boolean({.hf = prefix_ + key}).value_or(usual);
  }
  double original(const DecoderConfig& c) const {
    return number("original_max_position_embeddings").value_or(double(c.context));
  }

 private:
  const Config& keys_;
  std::string prefix_;
};

bool is_longrope(const std::string& type) { return type == "longrope" || type == "su"; }

void add_yarn(ArchitectureKeys& k, const RopeSettings& rope) {
  const DecoderConfig& c = k.model.config;
  const double original = rope.original(c);
  k.text("rope.scaling.type", "yarn");
  const double stretch = rope.number("factor").value_or(double(c.context) / original);
  k.number("rope.scaling.factor", stretch);
  k.count("rope.scaling.original_context_length", static_cast<int64_t>(original));
  if (const auto factor = rope.number("attention_factor")) {
    k.number("rope.scaling.yarn_attn_factor", *factor);
    // llama.cpp does not use that key: it multiplies YaRN's own magnitude by this one.
    k.number("rope.scaling.attn_factor", *factor / (stretch <= 1 ? 1 : 0.1 * std::log(stretch) + 1));
  }
  const double fast = rope.number("beta_fast").value_or(32), slow = rope.number("beta_slow").value_or(1);
  k.number("rope.scaling.yarn_beta_fast", fast);
  k.number("rope.scaling.yarn_beta_slow", slow);
  if ((fast != 32 || slow != 1) && k.model.architecture != "mistral3")
    log().warn("{}: llama.cpp computes YaRN with beta_fast 32 and beta_slow 1", k.model.source.origin());
  // The model's own code of gpt-oss does not round; readers of its files know it.
  k.require(rope.flag("truncate", true) != (k.model.architecture == "gpt-oss"), "YaRN with this value of 'truncate'");
  const double mscale = rope.number("mscale").value_or(0), all = rope.number("mscale_all_dim").value_or(0);
  if (k.model.architecture == "deepseek2") {  // both factors cancel in cosines and sines
    k.require(all == 0 || mscale == all, "YaRN with this 'mscale'");
    return;
  }
  if (mscale == 0 || all == 0) return;
  k.require(k.model.architecture == "mistral3" && mscale == 1, "YaRN with 'mscale'");
  k.number("rope.scaling.yarn_log_multiplier", all);
}

void add_longrope(ArchitectureKeys& k, const RopeSettings& rope) {
  const std::string& name = k.model.architecture;
  k.require(name == "phi3" || name == "minicpm3" || name == "phimoe", "rope scaling 'longrope'");
  const double original = rope.original(k.model.config);
  const double factor = rope.number("factor").value_or(double(k.model.config.context) / original);
  double magnitude = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  magnitude = rope.number("attention_factor").value_or(magnitude);
  if (name == "phimoe") {
    const double of_long = rope.number("long_mscale").value_or(magnitude);
    magnitude = rope.number("short_mscale").value_or(magnitude);
    k.require(of_long == magnitude, "different values of 'short_mscale' and 'long_mscale'");
  }
  k.number("rope.scaling.attn_factor", magnitude);
  if (name != "phi3") k.count("rope.scaling.original_context_length", static_cast<int64_t>(original));
}

void add_scaling(ArchitectureKeys& k, const RopeSettings& rope) {
  const std::string type = rope.type();
  if (type == "linear") {
    k.text("rope.scaling.type", "linear");
    k.number("rope.scaling.factor", rope.number("factor").value_or(1));
  } else if (type == "yarn") {
    add_yarn(k, rope);
  } else if (is_longrope(type)) {
    add_longrope(k, rope);
  } else if (type == "llama3") {
    const std::string& name = k.model.architecture;
    k.require(name == "llama" || name == "exaone4" || name == "smollm3" || name == "granite", "rope scaling 'llama3'");
  } else {
    k.require(type == "default" || type == "dynamic", "rope scaling '" + type + "'");
  }
}

// The divisor of each frequency: 1 for short waves, `factor` for long ones, interpolated between.
std::vector<float> llama3_divisors(const RopeSettings& rope, const DecoderConfig& c, double theta) {
  const double factor = rope.number("factor").value_or(8), low = rope.number("low_freq_factor").value_or(1);
  const double high = rope.number("high_freq_factor").value_or(4), original = rope.original(c);
  std::vector<float> divisors;
  for (int i = 0; i < c.rotary_dim; i += 2) {
    const double turns = original / (2 * std::numbers::pi) / std::pow(theta, double(i) / c.rotary_dim);
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - kept) / factor + kept)));
  }
  return divisors;
}

}  // namespace

void add_rope(ArchitectureKeys& k, const ArchitectureRule& rule) {
  const DecoderConfig& c = k.model.config;
  const RopeSettings rope(k.model);
  const std::string& name = k.model.architecture;
  const double alpha = rope.number("alpha").value_or(0);
  const double usual = name == "llama" && c.experts > 0 ? 1e6 : rule.theta;  // Mixtral's own default
  double theta = rope.number("rope_theta").value_or(usual);
  if (k.model.keys().has({.hf = "kv_channels"})) theta = 10000 * k.number_of("rope_ratio", 1);  // ChatGLM's own code
  const bool fixed_alpha = name == "hunyuan-dense" && rope.type() == "dynamic" && alpha != 0;
  if (fixed_alpha) theta *= std::pow(alpha, double(c.head_dim) / (c.head_dim - 2));
  k.number("rope.freq_base", theta);
  k.count("rope.dimension_count", c.rotary_dim);
  if (fixed_alpha) {
    k.text("rope.scaling.type", "none");
    k.number("rope.scaling.factor", 1);
    k.count("rope.scaling.original_context_length", c.context);
  } else {
    add_scaling(k, rope);
  }
}

namespace {

// Pairs that do not rotate get a divisor that makes their frequency 0.
std::vector<ComputedTensor> gemma4_divisors(const ConvertedModel& model) {
  constexpr float kStill = 1e30f;
  const int head_dim = read_gemma4_layers(model.source, model.config).back().head_dim;
  const double theta = model.keys().optional_number({.hf = "rope_parameters.full_attention.rope_theta"}).value_or(1e6);
  const auto plain = plain_rope_frequencies(theta, head_dim).inverse;
  const auto own = read_gemma4_rope(model.source, model.config, head_dim).inverse;
  if (own == plain) return {};
  std::vector<float> divisors;
  for (size_t i = 0; i < own.size(); ++i)
    divisors.push_back(own[i] == 0 ? kStill : static_cast<float>(double(plain[i]) / double(own[i])));
  return {{"rope_freqs.weight", std::move(divisors)}};
}

}  // namespace

std::vector<ComputedTensor> rope_tensors(const ConvertedModel& model) {
  if (model.architecture == "gemma4") return gemma4_divisors(model);
  const ArchitectureRule& rule = *find_rule(model.architecture);
  const RopeSettings rope(model);
  if (!rule.rope) return {};
  if (is_longrope(rope.type())) {
    // transformers applies the short factors of Phi-3.5-MoE at every length.
    const char* of_long = model.architecture == "phimoe" ? "short_factor" : "long_factor";
    return {{"rope_factors_long.weight", rope.numbers(of_long)},
            {"rope_factors_short.weight", rope.numbers("short_factor")}};
  }
  if (rope.type() == "llama3") {
    const double theta = rope.number("rope_theta").value_or(rule.theta);
    return {{"rope_freqs.weight", llama3_divisors(rope, model.config, theta)}};
  }
  return {};
}

}  // namespace millrace
