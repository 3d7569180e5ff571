#include "cli/checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace millrace {
namespace {

template <class T>
bool parses(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end;
}

}  // namespace

// CLI11's number parser wraps -1 and values that overflow.
std::string is_seed(const std::string& text) {
  uint64_t seed = 0;
  return parses(text, seed) ? "" : fmt::format("{} is not a whole number of 64 bits", text);
}

CLI::Validator whole_number(int64_t least, int64_t most) {
  const auto check = [=](const std::string& text) {
    int64_t value = 0;
    const bool good = parses(text, value) && value >= least && value <= most;
    return good ? "" : fmt::format("{} is not a whole number from {} to {}", text, least, most);
  };
  return {check, fmt::format("INT in [{} - {}]", least, most)};
}

CLI::Validator in_range(double least, double most) {
  const auto check = [=](const std::string& text) {
    double value = 0;
    const bool good = parses(text, value) && value >= least && value <= most;
    return good ? "" : fmt::format("{} is not a number from {} to {}", text, least, most);
  };
  return {check, fmt::format("FLOAT in [{} - {}]", least, most)};
}

void refuse_empty_values(CLI::App& verb) {
  constexpr std::array<std::string_view, 5> kMayBeEmpty{"PROMPT", "TEXT", "--system", "--tokens", "--stop"};
  const auto is_given = [](const std::string& text) { return text.empty() ? "the value is empty" : ""; };
  for (CLI::Option* option : verb.get_options()) {
    const bool is_flag = option->get_items_expected_max() == 0;
    const bool may_be_empty = std::count(kMayBeEmpty.begin(), kMayBeEmpty.end(), option->get_name()) > 0;
    if (!is_flag && !may_be_empty) option->check(is_given);
  }
}

}  // namespace millrace
