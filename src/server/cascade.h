// A cascade: two models behind one name. The small one answers first, and the mean log-probability of its answer's
// tokens decides whether the large one answers instead.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

class Call;
class Metrics;
class ModelPool;
class ServedModel;
class TaskQueue;
struct ApiContext;

struct Cascade {
  std::string name = "cascade";
  size_t small = 0, large = 1;  // in the pool
  double threshold = 0;

  // `mean`: over the tokens of the small model's answer; nullopt: it has none. With a threshold of 0 no answer stays.
  bool keeps(std::optional<double> mean) const { return mean && *mean > threshold; }
};

// The threshold that sends this share of answers with such means to the large model: no answer for 0, all for 1.
double cascade_threshold(std::vector<double> means, double share);

// Waits for the large model and goes on with it. What the small one took stays in the call's ledger, but `usage` begins
// anew. `mean`: of the small model's answer; nullopt: it has no tokens, or the small model did not take the prompt.
void escalate(const std::shared_ptr<Call>& call, const ApiContext& context, std::optional<double> mean,
              std::function<void(ServedModel&)> go_on);

}  // namespace millrace
