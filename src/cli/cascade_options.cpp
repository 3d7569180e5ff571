#include "cli/cascade_options.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "cli/cascade_calibration.h"
#include "cli/checks.h"
#include "store/catalogue.h"

namespace millrace {
namespace {

constexpr double kShare = 0.3;

bool same_model(const std::string& a, const std::string& b) {
  std::error_code error;
  const CatalogueEntry* known = find_in_catalogue(a);
  return a == b || (known != nullptr && known == find_in_catalogue(b)) || std::filesystem::equivalent(a, b, error);
}

bool is_auto(const CascadeOptions& o) { return o.threshold.empty() || o.threshold == "auto"; }

double read_threshold(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !(value <= 0)) {
    fail(ErrorKind::Usage, "--threshold {}: expected auto or a mean log-probability, a number up to 0 such as -0.5",
         text);
  }
  return value;
}

}  // namespace

void add_cascade_options(CLI::App& verb, CascadeOptions& o) {
  verb.add_option("--cascade", o.models,
                  "SMALL,LARGE: two models, as -m takes them, behind the name cascade. SMALL answers; if the mean "
                  "log-probability of its answer's tokens is not above --threshold, LARGE answers instead");
  verb.add_option("--threshold", o.threshold,
                  "of --cascade: a number up to 0, or auto (the default): so that --cascade-share of the answers to "
                  "--cascade-prompts come from LARGE");
  verb.add_option("--cascade-prompts", o.prompts, "for --threshold auto: a file with a prompt per line; default: ours");
  verb.add_option("--cascade-share", o.share,
                  fmt::format("for --threshold auto: the share of prompts that goes to LARGE; default: {}", kShare))
      ->check(in_range(0, 1));
}

std::vector<std::string> cascade_models(const CascadeOptions& o) {
  if (o.models.empty()) {
    const char* alone = !o.threshold.empty() ? "--threshold"
                        : !o.prompts.empty() ? "--cascade-prompts"
                        : o.share            ? "--cascade-share"
                                             : nullptr;
    if (alone != nullptr) fail(ErrorKind::Usage, "{}: only with --cascade", alone);
    return {};
  }
  if (!is_auto(o)) {
    read_threshold(o.threshold);
    if (!o.prompts.empty()) fail(ErrorKind::Usage, "--cascade-prompts: only with --threshold auto");
    if (o.share) fail(ErrorKind::Usage, "--cascade-share: only with --threshold auto");
  }
  const size_t comma = o.models.find(',');
  if (comma == std::string::npos || o.models.find(',', comma + 1) != std::string::npos) {
    fail(ErrorKind::Usage, "--cascade {}: expected two models, SMALL,LARGE", o.models);
  }
  std::vector<std::string> models{o.models.substr(0, comma), o.models.substr(comma + 1)};
  if (models[0].empty() || models[1].empty()) {
    fail(ErrorKind::Usage, "--cascade {}: expected two models, SMALL,LARGE", o.models);
  }
  if (same_model(models[0], models[1])) {
    fail(ErrorKind::Usage, "--cascade {}: both are the same model; give a small one and a large one", o.models);
  }
  return models;
}

Cascade make_cascade(const CascadeOptions& o, ModelOptions model) {
  const std::vector<std::string> models = cascade_models(o);
  for (const std::string& one : models) {
    std::error_code error;
    if (!one.starts_with("synthetic:") && !std::filesystem::exists(one, error)) continue;  // checked when it is loaded
    ModelOptions local = model;
    local.model = one;
    require_logits(Runner(open_model(local), load_options(local)));
  }
  if (!is_auto(o)) return {.threshold = read_threshold(o.threshold)};
  model.model = models.front();
  return {.threshold = cascade_threshold(answer_means(model, o.prompts), o.share.value_or(kShare))};
}

}  // namespace millrace
