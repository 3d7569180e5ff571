#include "server/cascade.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "server/api.h"
#include "server/metrics.h"
#include "server/model_choice.h"
#include "server/model_pool.h"

namespace millrace {

double cascade_threshold(std::vector<double> means, double share) {
  const auto escalated = static_cast<size_t>(std::lround(share * static_cast<double>(means.size())));
  if (escalated == 0) return -std::numeric_limits<double>::infinity();
  if (escalated >= means.size()) return 0;
  std::sort(means.begin(), means.end());
  return (means[escalated - 1] + means[escalated]) / 2;
}

void escalate(const std::shared_ptr<Call>& call, const ApiContext& context, std::optional<double> mean,
              std::function<void(ServedModel&)> go_on) {
  const Cascade& cascade = *call->cascade;
  const std::string& name = context.models.names(cascade.large).front();
  const Usage small = std::exchange(call->usage, {});
  call->usage.queued_ms = small.queued_ms;
  call->usage.compute_ms = small.compute_ms;
  call->usage.joules = small.joules;
  call->usage.cascade = {name, mean, cascade.threshold, small.prompt_tokens, small.completion_tokens};
  context.metrics.count_cascade(name, small.completion_tokens);
  call->model_lease.reset();  // the large model may need the small one's memory
  with_model(call, context.models, context.workers, cascade.large, std::move(go_on));
}

}  // namespace millrace
