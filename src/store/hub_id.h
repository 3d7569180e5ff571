// How a person names a model on the Hugging Face hub: owner/name, owner/name:file.gguf or owner/name:Q4_K_M.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct HubId {
  std::string owner, name;
  std::string choice;  // what follows the colon; empty: nothing does

  std::string repository() const { return owner + "/" + name; }
  bool names_file() const { return choice.ends_with(".gguf"); }
};

// Nothing where the text has not this form; Usage where the choice after the colon is no safe path.
std::optional<HubId> parse_hub_id(std::string_view text);

}  // namespace millrace
