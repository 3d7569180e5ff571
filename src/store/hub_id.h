// Ids of models on the Hugging Face hub: owner/name, owner/name:file.gguf or owner/name:Q4_K_M.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct HubId {
  std::string owner, name;
  std::string choice;  // the text behind the colon; may be empty

  std::string repository() const { return owner + "/" + name; }
  bool names_file() const { return choice.ends_with(".gguf"); }
};

// Empty if the text does not have this form. Throws Usage if the choice is not a safe path.
std::optional<HubId> parse_hub_id(std::string_view text);

}  // namespace millrace
