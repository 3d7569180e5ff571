// Collects an importance matrix (formats/imatrix.h) by running a model over a text.
#pragma once

#include <functional>
#include <span>

#include "engine/runner.h"
#include "formats/imatrix.h"

namespace millrace {

// Runs whole windows of the tokens, each as long as the runner's context; most_windows 0: all of them. The first token
// of a window is replaced by `bos`, unless that is negative. Covers the matrices of layers, not the output matrix and
// not latent attention's matrices of heads. The runner must compute on the CPU, with logit_rows as large as rows.
ImatrixSums measure_importance(Runner& runner, std::span<const int32_t> tokens, int64_t most_windows, int32_t bos,
                               const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace millrace
