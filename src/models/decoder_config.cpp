#include "models/decoder_config.h"

#include <algorithm>

#include "base/error.h"
#include "formats/folder_quantization.h"

namespace millrace {

void refuse(const WeightSource& source, const std::string& what) {
  fail(ErrorKind::Unsupported, "{}: {} is not supported", source.origin(), what);
}

namespace {

// Layers of another kind have a zero in the list; `usual` is for lists of zeros.
int64_t first_of_list(const Config& config, ConfigKey key, int64_t most, int64_t usual) {
  const auto list = config.array<int64_t>(key);
  const auto first = std::find_if(list.begin(), list.end(), [](int64_t value) { return value != 0; });
  const int64_t value = first != list.end() ? *first : usual;
  if (value < 1 || value > most) config.fail_key(key, "has an implausible first value");
  return value;
}

}  // namespace

DecoderConfig read_decoder_config(const WeightSource& source, const DecoderKeys& keys) {
  const Config& config = source.config();
  check_quantization(config);
  // A list with one value per layer gives the first; architectures that vary by layer read all of it.
  const auto count = [&](ConfigKey key, int64_t most, int64_t usual = 0) {
    if (config.has_list(key)) return first_of_list(config, key, most, usual);
    return usual > 0 ? config.optional_integer(key, {1, most}).value_or(usual) : config.integer(key, {1, most});
  };
  DecoderConfig c;
  c.architecture = config.architecture();
  c.layers = count({keys.layers, "block_count"}, 1000, keys.usual_layers);
  c.hidden = count({keys.hidden, "embedding_length"}, 1 << 20);
  c.feed_forward = count({keys.feed_forward, "feed_forward_length"}, 1 << 22, keys.usual_feed_forward);
  c.heads = static_cast<int>(count({keys.heads, "attention.head_count"}, 1 << 14, keys.usual_heads));
  const ConfigKey kv{keys.kv_heads, "attention.head_count_kv"};
  const bool usual_kv = keys.usual_kv_heads > 0 && !config.has_list(kv);  // a list of zeros: no layer has attention
  c.kv_heads = static_cast<int>(count(kv, c.heads, usual_kv ? keys.usual_kv_heads : c.heads));
  if (c.heads % c.kv_heads != 0) config.fail_key(kv, "must divide the number of heads");
  auto head_dim = config.optional_integer({keys.head_dim, "attention.key_length"}, {1, 1 << 12});
  if (!head_dim && keys.usual_head_dim > 0) head_dim = keys.usual_head_dim;
  if (!head_dim && c.hidden % c.heads != 0)
    config.fail_key({keys.heads, "attention.head_count"}, "must divide the hidden size");
  c.head_dim = static_cast<int>(head_dim.value_or(c.hidden / c.heads));
  c.context = count({keys.context, "context_length"}, int64_t(1) << 30, keys.usual_context);
  const ConfigKey epsilon{keys.norm_epsilon, keys.gguf_norm_epsilon};
  c.norm_epsilon = static_cast<float>(config.optional_number(epsilon).value_or(keys.usual_epsilon));
  if (!(c.norm_epsilon >= 0)) config.fail_key(epsilon, "must not be negative");
  c.window = static_cast<int>(
      config.optional_integer({"sliding_window", "attention.sliding_window"}, {0, int64_t(1) << 30}).value_or(0));

  const double usual_rotary = source.convention() == WeightSource::Convention::Gguf ? 1 : keys.usual_rotary;
  const double partial = config.optional_number({.hf = "rope_parameters.partial_rotary_factor"}).value_or(usual_rotary);
  if (!(partial > 0 && partial <= 1))
    config.fail_key({.hf = "rope_parameters.partial_rotary_factor"}, "must be over 0 and at most 1");
  c.rotary_dim = static_cast<int>(config.optional_integer({.gguf = "rope.dimension_count"}, {0, c.head_dim})
                                      .value_or(static_cast<int64_t>(partial * c.head_dim)));

  // GGUF files may omit the vocabulary size; the embedding's shape gives it.
  if (const auto* table = source.find("token_embd.weight"); table != nullptr && table->shape.size() == 2) {
    c.vocab = table->shape[0];
  } else {
    c.vocab = count({keys.vocab, "vocab_size"}, 1 << 24, keys.usual_vocab);
  }
  if (const auto values = config.optional_integer({.gguf = "attention.value_length"});
      values && *values != c.head_dim && !keys.any_value_size) {
    refuse(source, "a value head size that differs from the key's");
  }
  return c;
}

}  // namespace millrace
