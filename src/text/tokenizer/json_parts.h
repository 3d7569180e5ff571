// Builds the components of a tokenizer from the JSON of tokenizer.json. A null result means no component. All functions
// throw BadFile or Unsupported.
#pragma once

#include <memory>
#include <vector>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace millrace {

std::unique_ptr<Normalizer> normalizer_from_json(const nlohmann::json& json);
std::unique_ptr<PreTokenizer> pre_tokenizer_from_json(const nlohmann::json& json);
std::vector<DecodeStep> decoders_from_json(const nlohmann::json& json);

// The ids around a text, with TokenizerParts::kText in place of the text.
std::vector<int32_t> frame_from_json(const nlohmann::json& json);
TokenizerParts::PairFrame pair_from_json(const nlohmann::json& json);

}  // namespace millrace
