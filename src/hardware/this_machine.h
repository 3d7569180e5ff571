// The machine with its ceilings, measured once and kept in the user's cache.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hardware/hardware.h"

namespace millrace {

// threads 0: one per usable physical core. Kept measurements are used where there are any; else `measure` decides
// between about a second of measuring now and guesses. What was measured on a busy machine is not kept.
Hardware this_machine(int threads = 0, bool measure = false, IsaSet allowed = detect_isa());

std::filesystem::path kept_ceilings_file(const std::string& hardware_id);
std::optional<Ceilings> load_ceilings(const std::filesystem::path& file);  // nothing where missing or damaged
void save_ceilings(const std::filesystem::path& file, const Ceilings& ceilings);

}  // namespace millrace
