// Selects the files of a hub repository that make up a model.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/hub_id.h"

namespace millrace {

// All parts of a split GGUF model (x-00001-of-00003.gguf) in order, or the file alone.
std::vector<std::string> gguf_parts(const std::string& file);

// The GGUF files of a listing that are models: without later parts of a split, vision projectors and importance
// matrices.
std::vector<std::string> gguf_choices(std::span<const std::string> listing);

// True if the listing is a Hugging Face model folder (config.json and safetensors).
bool is_model_folder(std::span<const std::string> listing);

// The files of a model folder beside its weights, in the order of their download.
std::vector<std::string> folder_companions(std::span<const std::string> listing);

// The safetensors files that `index_json` names. Without an index (empty text): all safetensors files of the listing.
std::vector<std::string> folder_weights(std::span<const std::string> listing, std::string_view index_json);

// The GGUF file that the id selects. If the id selects none or several, the error lists the choices.
std::string choose_gguf(std::span<const std::string> listing, const HubId& id);

inline constexpr const char* kWeightsIndex = "model.safetensors.index.json";

}  // namespace millrace
