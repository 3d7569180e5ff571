// Attention scores: the unified maximum (phi) of calibrated layers, and the ranges that a calibration observes.
#include <algorithm>

#include "base/log.h"
#include "engine/rank.h"

namespace millrace {

void Rank::read_calibration(const WeightSource& source) {
  phi_.resize(layout_.paged().size());
  knowledge_.phi.resize(phi_.size());
  const auto calibration = Calibration::load(Calibration::file_for(source), std::ssize(phi_), model_->config().heads);
  if (!calibration) return;
  for (size_t i = 0; i < phi_.size(); ++i) {
    phi_[i] = calibration->phi(static_cast<int64_t>(i), *options_.kv_type);
    if (!phi_[i].empty()) knowledge_.phi[i] = phi_[i].data();  // dry passes only test it for null
  }
  log().info("scores are calibrated in {} of {} layers", calibrated_layers(), phi_.size());
}

int64_t Rank::calibrated_layers() const {
  return std::count_if(phi_.begin(), phi_.end(), [](const auto& layer) { return !layer.empty(); });
}

void Rank::place_calibration() {
  const size_t bytes = static_cast<size_t>(model_->config().heads) * sizeof(float);
  scores_ = std::make_unique<Arena>("calibration", phi_.size() * Arena::padded(bytes), device_->memory());
  for (size_t i = 0; i < phi_.size(); ++i) {
    if (phi_[i].empty()) continue;
    std::byte* placed = scores_->take(bytes);
    device_->memory().write(placed, reinterpret_cast<const std::byte*>(phi_[i].data()), bytes);
    knowledge_.phi[i] = reinterpret_cast<const float*>(placed);
  }
}

void Rank::observe_scores(bool observe) {
  knowledge_.observed = nullptr;
  if (!observe) return;
  const auto count = phi_.size() * static_cast<size_t>(model_->config().heads);
  const std::vector<ScoreRange> nothing(count);
  observed_ = std::make_unique<Arena>("observed scores", count * sizeof(ScoreRange), device_->memory());
  std::byte* placed = observed_->take(count * sizeof(ScoreRange));
  device_->memory().write(placed, reinterpret_cast<const std::byte*>(nothing.data()), count * sizeof(ScoreRange));
  knowledge_.observed = reinterpret_cast<ScoreRange*>(placed);
}

Calibration Rank::observed_scores() {
  const int heads = model_->config().heads;
  Calibration seen{0, heads, std::vector<ScoreRange>(phi_.size() * static_cast<size_t>(heads))};
  device_->finish();
  device_->memory().read(reinterpret_cast<std::byte*>(seen.ranges.data()),
                         reinterpret_cast<const std::byte*>(knowledge_.observed),
                         seen.ranges.size() * sizeof(ScoreRange));
  return seen;
}

}  // namespace millrace
