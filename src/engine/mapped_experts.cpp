#include "engine/mapped_experts.h"

#include <algorithm>

#include "engine/memory_plan.h"

namespace millrace {

ExpertsIn place_experts(int64_t total, int64_t experts, int64_t available) {
  const bool helps = total > available && experts > 0 && total - experts <= available;
  return helps ? ExpertsIn::File : ExpertsIn::Memory;
}

double MappedExperts::share_from_storage() const {
  if (bytes == 0) return 0;
  return 1 - std::clamp(static_cast<double>(room) / static_cast<double>(bytes), 0.0, 1.0);
}

double MappedExperts::storage_us() const {
  return storage_gbs > 0 ? share_from_storage() * static_cast<double>(bytes_of_a_row) / storage_gbs * 1e-3 : 0;
}

std::string MappedExperts::to_string() const {
  std::string text = fmt::format(
      "the experts ({}) stay in the file, and the system reads them as needed: memory has room for {} of them",
      human_bytes(bytes), human_bytes(std::clamp<int64_t>(room, 0, bytes)));
  if (share_from_storage() == 0) return text;
  text += fmt::format(". A token reads {} of experts, {:.0f} % of it from storage", human_bytes(bytes_of_a_row),
                      100 * share_from_storage());
  if (storage_gbs == 0) return text;
  return text + fmt::format(" at {:.1f} GB/s: at most {:.2g} tokens/s", storage_gbs, 1e6 / storage_us());
}

}  // namespace millrace
