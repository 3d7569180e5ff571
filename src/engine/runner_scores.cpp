// What is known of the scores of attention: phi of calibrated layers, and what a calibration observes.
#include <algorithm>

#include "base/log.h"
#include "engine/runner.h"

namespace millrace {

void Runner::read_calibration() {
  const auto& config = model_->config();
  phi_.resize(static_cast<size_t>(config.layers));
  const auto calibration = Calibration::load(Calibration::file_for(*source_), config.layers, config.heads);
  if (!calibration) return;
  for (int64_t i = 0; i < config.layers; ++i) phi_[static_cast<size_t>(i)] = calibration->phi(i, *options_.kv_type);
  log().info("scores are calibrated in {} of {} layers", calibrated_layers(), config.layers);
}

int64_t Runner::calibrated_layers() const {
  return std::count_if(phi_.begin(), phi_.end(), [](const auto& layer) { return !layer.empty(); });
}

void Runner::place_calibration() {
  const size_t bytes = static_cast<size_t>(model_->config().heads) * sizeof(float);
  scores_ = std::make_unique<Arena>("calibration", phi_.size() * Arena::padded(bytes), device_->memory());
  for (const auto& layer : phi_) {
    std::byte* placed = layer.empty() ? nullptr : scores_->take(bytes);
    if (placed != nullptr) device_->memory().write(placed, reinterpret_cast<const std::byte*>(layer.data()), bytes);
    knowledge_.phi.push_back(reinterpret_cast<const float*>(placed));
  }
}

void Runner::observe_scores(bool observe) {
  knowledge_.observed = nullptr;
  if (!observe) return;
  const auto count = phi_.size() * static_cast<size_t>(model_->config().heads);
  const std::vector<ScoreRange> nothing(count);
  observed_ = std::make_unique<Arena>("observed scores", count * sizeof(ScoreRange), device_->memory());
  std::byte* placed = observed_->take(count * sizeof(ScoreRange));
  device_->memory().write(placed, reinterpret_cast<const std::byte*>(nothing.data()), count * sizeof(ScoreRange));
  knowledge_.observed = reinterpret_cast<ScoreRange*>(placed);
}

Calibration Runner::observed_scores() {
  const int heads = model_->config().heads;
  Calibration seen{0, heads, std::vector<ScoreRange>(phi_.size() * static_cast<size_t>(heads))};
  device_->finish();
  device_->memory().read(reinterpret_cast<std::byte*>(seen.ranges.data()),
                         reinterpret_cast<const std::byte*>(knowledge_.observed),
                         seen.ranges.size() * sizeof(ScoreRange));
  return seen;
}

}  // namespace millrace
