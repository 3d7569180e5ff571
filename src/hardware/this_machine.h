// The machine with its peak rates, measured once and kept in the user's cache.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hardware/hardware.h"

namespace millrace {

// threads 0: one per usable physical core. Uses cached measurements if they exist. Otherwise measures for about a
// second if `measure`, else guesses. Measurements of a busy machine are not cached.
Hardware this_machine(int threads = 0, bool measure = false, IsaSet allowed = detect_isa());
// Measures even if earlier measurements are kept, and replaces them.
Hardware measured_again(int threads = 0);

std::filesystem::path kept_ceilings_file(const std::string& hardware_id);
std::optional<Ceilings> load_ceilings(const std::filesystem::path& file);  // nothing if missing or damaged
void save_ceilings(const std::filesystem::path& file, const Ceilings& ceilings);

}  // namespace millrace
