#include "models/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

// The settings of one rope in GGUF and Hugging Face configs.
class Settings {
 public:
  Settings(const WeightSource& source, const std::string& section)
      : config_(source.config()), prefix_(section.empty() ? "rope_parameters." : "rope_parameters." + section + ".") {}

  const std::string& origin() const { return config_.origin(); }
  std::optional<double> number(const char* hf, const char* gguf = "") const {
    const std::string path = prefix_ + hf;
    return config_.optional_number({*hf ? std::string_view(path) : std::string_view(), gguf});
  }
  double positive(const char* hf, const char* gguf, double fallback) const {
    const double value = number(hf, gguf).value_or(fallback);
    if (!(value > 0) || !std::isfinite(value))
      fail(ErrorKind::BadFile, "{}: '{}' must be positive", config_.origin(), prefix_ + hf);
    return value;
  }
  // A number that Hugging Face configs with this scaling must have.
  double needed(const char* hf) const {
    static_cast<void>(config_.number({.hf = prefix_ + hf}));
    return positive(hf, "", 1);
  }
  std::string type() const {
    const std::string path = prefix_ + "rope_type";
    return config_.optional_string({path, "rope.scaling.type"}).value_or(gguf_factor() > 0 ? "linear" : "default");
  }
  // llama.cpp treats a factor without type as linear; the first GGUF files used another key.
  double gguf_factor() const {
    return number("", "rope.scaling.factor").value_or(number("", "rope.scale_linear").value_or(0));
  }
  std::vector<double> factors(const char* hf, size_t count) const {
    const std::string path = prefix_ + hf;
    auto values = config_.optional_array<double>({.hf = path}).value_or(std::vector<double>());
    if (values.size() != count) fail(ErrorKind::BadFile, "{}: '{}' must have {} values", config_.origin(), path, count);
    return values;
  }

 private:
  const Config& config_;
  std::string prefix_;
};

std::vector<double> base_frequencies(double theta, int rotary_dim) {
  std::vector<double> inverse;
  for (int i = 0; i < rotary_dim / 2; ++i) inverse.push_back(std::pow(theta, -2.0 * i / rotary_dim));
  return inverse;
}

std::vector<float> as_float(const std::vector<double>& values) { return {values.begin(), values.end()}; }

// Llama 3: low frequencies are scaled, high frequencies kept, those between interpolated.
void stretch_llama3(std::vector<double>& inverse, const Settings& s, int64_t context) {
  const double factor = s.needed("factor"), low = s.needed("low_freq_factor"), high = s.needed("high_freq_factor");
  const double original = s.positive("original_max_position_embeddings", "", double(context));
  for (double& f : inverse) {
    const double turns = original * f / (2 * std::numbers::pi);  // rotations within the original context
    if (turns < low) {
      f /= factor;
    } else if (turns < high) {
      const double smooth = (turns - low) / (high - low);
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
}

double yarn_magnitude(double factor, double multiplier = 1) {
  return factor <= 1 ? 1 : 0.1 * multiplier * std::log(factor) + 1;
}

// YaRN (arXiv 2309.00071): dimensions with many rotations are kept, those with few are scaled.
void stretch_yarn(RopeFrequencies& out, std::vector<double>& inverse, const Settings& s, double theta,
                  const DecoderConfig& c, bool truncate, bool gguf) {
  const double original =
      s.positive("original_max_position_embeddings", "rope.scaling.original_context_length", double(c.context));
  const double factor = s.positive("factor", "rope.scaling.factor", gguf ? 1 : double(c.context) / original);
  const double fast = s.positive("beta_fast", "rope.scaling.yarn_beta_fast", 32);
  const double slow = s.positive("beta_slow", "rope.scaling.yarn_beta_slow", 1);
  if (!(theta > 1)) fail(ErrorKind::BadFile, "{}: YaRN needs a rope_theta over 1", s.origin());
  const auto dimension_turning = [&](double turns) {
    return c.rotary_dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension_turning(fast), high = dimension_turning(slow);
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, c.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inverse.size(); ++i) {
    const double stretched = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] = inverse[i] / factor * stretched + inverse[i] * (1 - stretched);
  }
  if (const auto given = s.number("attention_factor", "rope.scaling.yarn_attn_factor")) {
    out.magnitude = static_cast<float>(*given);
  } else if (gguf) {
    out.magnitude = static_cast<float>(s.number("", "rope.scaling.attn_factor").value_or(1) * yarn_magnitude(factor));
  } else {
    const double mscale = s.number("mscale").value_or(0), all = s.number("mscale_all_dim").value_or(0);
    out.magnitude =
        static_cast<float>(mscale != 0 && all != 0 ? yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all)
                                                   : yarn_magnitude(factor));
  }
}

std::vector<double> tensor_values(const WeightSource& source, const std::string& name, int64_t count) {
  const int64_t shape[] = {count};
  const WeightView view = source.tensor(name, shape);
  std::vector<float> values(static_cast<size_t>(count));
  dequantize_row(view.dtype, view.data, values.data(), count);
  for (const float value : values) {
    if (!(value > 0))
      fail(ErrorKind::BadFile, "{}: tensor '{}' has a factor that is not positive", source.origin(), name);
  }
  return {values.begin(), values.end()};
}

std::vector<float> divided(std::vector<double> inverse, const std::vector<double>& factors) {
  for (size_t i = 0; i < inverse.size(); ++i) inverse[i] /= factors[i];
  return as_float(inverse);
}

// LongRoPE (arXiv 2402.13753): one list of factors for short and one for long sequences.
void stretch_longrope(RopeFrequencies& out, const std::vector<double>& inverse, const Settings& s,
                      const WeightSource& source, const DecoderConfig& c) {
  const bool gguf = source.convention() == WeightSource::Convention::Gguf;
  const auto half = static_cast<int64_t>(inverse.size());
  const double original =
      s.positive("original_max_position_embeddings", "rope.scaling.original_context_length", double(c.context));
  const auto list = [&](const char* tensor, const char* key) {
    return gguf ? tensor_values(source, tensor, half) : s.factors(key, inverse.size());
  };
  out.inverse = divided(inverse, list("rope_factors_short.weight", "short_factor"));
  out.inverse_long = divided(inverse, list("rope_factors_long.weight", "long_factor"));
  out.long_from = static_cast<int64_t>(original);
  const double factor = s.number("factor").value_or(double(c.context) / original);
  const double computed = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  out.magnitude = out.magnitude_long =
      static_cast<float>(s.number("attention_factor", "rope.scaling.attn_factor").value_or(computed));
}

}  // namespace

RopeFrequencies plain_rope_frequencies(double theta, int rotary_dim) {
  return {as_float(base_frequencies(theta, rotary_dim))};
}

RopeFrequencies read_rope_frequencies(const WeightSource& source, const DecoderConfig& c, const std::string& section,
                                      double usual_theta, bool gguf_truncates) {
  if (c.rotary_dim % 2 != 0) refuse(source, "a rotary part of odd size");
  if (c.rotary_dim == 0) {
    source.config().fail_key({"rope_parameters.partial_rotary_factor", "rope.dimension_count"},
                             "leaves no part of a head to rotate");
  }
  const Settings s(source, section);
  const bool gguf = source.convention() == WeightSource::Convention::Gguf;
  const double theta = s.positive("rope_theta", "rope.freq_base", usual_theta);
  std::vector<double> inverse = base_frequencies(theta, c.rotary_dim);
  RopeFrequencies out;
  if (const std::string type = s.type(); type == "linear") {
    const double usual = s.gguf_factor() > 0 ? s.gguf_factor() : 1;
    const double factor = gguf ? s.positive("factor", "rope.scaling.factor", usual) : s.needed("factor");
    for (double& f : inverse) f /= factor;
  } else if (type == "llama3") {
    stretch_llama3(inverse, s, c.context);
  } else if (type == "yarn") {
    const std::string path = "rope_parameters." + (section.empty() ? "" : section + ".") + "truncate";
    const bool truncate = source.config().optional_boolean({.hf = path}).value_or(!gguf || gguf_truncates);
    stretch_yarn(out, inverse, s, theta, c, truncate, gguf);
  } else if (type == "longrope" || type == "su" || source.find("rope_factors_long.weight") != nullptr) {
    stretch_longrope(out, inverse, s, source, c);
    return out;
  } else if (type != "default" && type != "none" &&
             type != "dynamic") {  // dynamic changes nothing within the trained context
    refuse(source, "rope scaling '" + type + "'");
  }
  // GGUF files store llama3's scaling as a table of divisors.
  if (gguf && source.find("rope_freqs.weight") != nullptr) {
    out.inverse = divided(inverse, tensor_values(source, "rope_freqs.weight", c.rotary_dim / 2));
  } else {
    out.inverse = as_float(inverse);
  }
  return out;
}

}  // namespace millrace
