// Runs requests together: every step advances all running sequences by one token and spends what room is left on the
// prompts that wait. The contract is in README.md beside this file.
#pragma once

#include <deque>
#include <memory>

#include "base/function_ref.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "engine/sequence.h"
#include "engine/step_batch.h"

namespace millrace {

struct EngineOptions {
  // Prompts are computed in chunks beside the streams that run. A step may then take this long; 0: as long as a step
  // without the chunk, and prefill_slack more. With no stream running, chunks are as large as the runner takes.
  double tpot_target_ms = 0;
  double prefill_slack = 0.35;
  bool prefix_cache = true;  // pages of prompts and answers are kept for those that begin alike
};

class Engine {
 public:
  explicit Engine(Runner& runner, const EngineOptions& options = {});

  // Queues a request. Throws Usage where it could never run: no prompt, a token out of range, more than the context
  // holds.
  RequestId submit(Request request);
  void cancel(RequestId id);  // its pages are free at once; an unknown id is ignored

  // One forward pass; emits at most one token per sequence. False: nothing left to do.
  bool step(FunctionRef<void(const Emission&)> emit);

  size_t running() const { return running_.size(); }
  size_t waiting() const { return waiting_.size(); }

 private:
  void admit();
  void compose();
  void sample(Matrix logits, FunctionRef<void(const Emission&)> emit);

  Runner& runner_;
  StepBatch batch_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // admitted: their pages are reserved
  std::vector<Sequence*> with_logits_;              // in the order of this step's logit rows
  RequestId next_id_ = 1;
};

}  // namespace millrace
