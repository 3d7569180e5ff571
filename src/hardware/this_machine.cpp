#include "hardware/this_machine.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/environment.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/write_file.h"
#include "hardware/ceilings.h"
#include "hardware/describe.h"
#include "hardware/detect.h"
#include "hardware/load.h"

namespace millrace {
namespace {

constexpr int kVersion = 3;           // of the file format; files of other versions are measured again
constexpr double kQuietEnough = 0.7;  // of the requested CPU time

// Keeps the guesses if other processes took much of the machine during the measurement.
void measure_into(Hardware& hardware) {
  const LoadMeter load = LoadMeter::with_look_ahead();
  ThreadPool pool(hardware.threads);
  Ceilings measured = measure_ceilings(hardware, pool);
  const double share_to_expect = std::min(1.0, double(hardware.cores) / hardware.threads);
  const double others = load.others();
  if (others > kBusyShare || measured.cpu_share < kQuietEnough * share_to_expect || !plausible(measured)) {
    const std::string busy = others > kBusyShare ? busy_text(others) : "the machine is busy";
    log().warn("{}; its peak rates are guesses: run 'millrace doctor' when it is idle", busy);
    return;
  }
  hardware.ceilings = std::move(measured);
  try {
    save_ceilings(kept_ceilings_file(hardware.id), hardware.ceilings);
  } catch (const Error& error) {
    log().warn("cannot save the measured peak rates: {}", error.what());
  }
}

}  // namespace

std::filesystem::path kept_ceilings_file(const std::string& hardware_id) {
  return environment().cache / "hardware" / (hardware_id + ".json");
}

std::optional<Ceilings> load_ceilings(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  const auto json = read_json(text.str());
  if (!json.is_object() || json.value("version", nlohmann::json()) != kVersion) return std::nullopt;
  const auto ceilings = json.find("ceilings");
  return ceilings == json.end() ? std::nullopt : parse_ceilings(*ceilings);
}

void save_ceilings(const std::filesystem::path& file, const Ceilings& ceilings) {
  const nlohmann::json json = {{"version", kVersion}, {"ceilings", describe(ceilings)}};
  write_file(file, json_text(json, 1) + "\n");
}

Hardware measured_again(int threads) {
  Hardware hardware = detect_cpu(threads, detect_isa());
  measure_into(hardware);
  return hardware;
}

Hardware this_machine(int threads, bool measure, IsaSet allowed) {
  Hardware hardware = detect_cpu(threads, allowed);
  if (auto kept = load_ceilings(kept_ceilings_file(hardware.id))) {
    hardware.ceilings = std::move(*kept);
  } else if (measure) {
    measure_into(hardware);
  }
  return hardware;
}

}  // namespace millrace
