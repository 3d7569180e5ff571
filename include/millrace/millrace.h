// millrace from C++: load a model, generate text. Link with -lmillrace. Every failure is a std::runtime_error with one
// line of text that names the problem and the remedy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#define MILLRACE_API __attribute__((visibility("default")))

namespace millrace {

struct ModelSettings {
  // "cpu", "cuda" (the first GPU), "cuda:N", or "auto": the first GPU if this build can use it, else the CPU
  std::string device = "auto";
  int threads = 0;      // 0: one per usable core
  int64_t context = 0;  // 0: the model's, or what memory allows
  bool exact = false;   // f32 activations, KV cache and arithmetic
  std::string kv_type;  // "f32", "f16", "bf16", "q8_0", "fp8"; empty: f16
};

struct GenerateSettings {  // unset fields take the model's own defaults
  int max_tokens = 0;      // 0: until the model ends the answer or the context is full
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
  uint64_t seed = 0;
  std::vector<std::string> stop;
  bool chat = true;  // wrap the prompt in the model's chat template, if it has one
};

struct Generated {
  std::string text;
  std::vector<int32_t> tokens;
  bool out_of_room = false;  // ended by max_tokens or a full context
  int prompt_tokens = 0;
};

class LanguageModel {
 public:
  // A .gguf file, a Hugging Face folder, or a name from `millrace models`, which is downloaded once.
  MILLRACE_API explicit LanguageModel(const std::string& model, const ModelSettings& settings = {});
  MILLRACE_API ~LanguageModel();
  LanguageModel(const LanguageModel&) = delete;

  // `on_text` receives the answer in pieces of whole characters. Not thread-safe: one call at a time.
  MILLRACE_API Generated generate(const std::string& prompt, const GenerateSettings& settings = {},
                                  const std::function<void(std::string_view)>& on_text = {});
  MILLRACE_API std::vector<int32_t> tokenize(const std::string& text) const;
  MILLRACE_API std::string detokenize(const std::vector<int32_t>& tokens) const;

 private:
  struct Loaded;
  std::unique_ptr<Loaded> loaded_;
};

}  // namespace millrace
