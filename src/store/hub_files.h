// Which files of a hub repository make up a model.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/hub_id.h"

namespace millrace {

// All parts of a split GGUF model (x-00001-of-00003.gguf), or the file alone; the first part comes first.
std::vector<std::string> gguf_parts(const std::string& file);

// The GGUF files of a listing that are models: not the later parts of a split, a vision projector or quantization data.
std::vector<std::string> gguf_choices(std::span<const std::string> listing);

// Whether a listing holds a Hugging Face model folder (config.json and safetensors).
bool is_model_folder(std::span<const std::string> listing);

// The files beside the weights that a model folder may have, in the order they are fetched.
std::vector<std::string> folder_companions(std::span<const std::string> listing);

// The safetensors files: those that the index names (its JSON text; empty: there is none), else the ones there are.
std::vector<std::string> folder_weights(std::span<const std::string> listing, std::string_view index_json);

// The GGUF file that the id asks for. Throws a list of the choices where that is not one.
std::string choose_gguf(std::span<const std::string> listing, const HubId& id);

inline constexpr const char* kWeightsIndex = "model.safetensors.index.json";

}  // namespace millrace
