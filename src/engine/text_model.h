// Text side of a model: tokenizer, chat template, end tokens, sampling defaults.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "formats/weight_source.h"
#include "sampling/sampling_params.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace millrace {

struct ChatTemplates {
  ChatTemplateSources sources;
  nlohmann::ordered_json special_tokens;  // bos_token, eos_token and so on, for the template
};

struct TextModel {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplates> chat;  // none for a base model
  std::vector<int32_t> end_tokens;    // union of config, generation_config, and GGUF's eos, eot and eom
  SamplingParams sampling;            // the model's recommendation, or our defaults
  bool sampling_from_model = false;
};

bool has_tokenizer(const WeightSource& source);

// Throws NotFound if the model has no tokenizer.
TextModel load_text_model(const WeightSource& source);
std::shared_ptr<const Tokenizer> load_tokenizer(const WeightSource& source);
// `own` replaces the templates of the model, unless it is empty.
std::optional<ChatTemplates> load_chat_templates(const WeightSource& source, const std::string& own = "");

// The prompt for a conversation; `context` holds messages and any other variable of the template.
RenderedChat render_chat(const TextModel& model, nlohmann::ordered_json context);

// Its tokens. Only markup of the template becomes special tokens; in the content of messages they are plain text.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat);

}  // namespace millrace
