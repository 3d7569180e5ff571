// Collects an importance matrix from a text file, for the verbs imatrix and quantize.
#pragma once

#include <memory>
#include <string>

#include "engine/load_options.h"
#include "formats/imatrix.h"
#include "formats/weight_source.h"

namespace millrace {

// `load`: its context is the length of a window; 0: 512. Computes on the CPU. chunks: windows to run; 0: the whole
// text.
ImatrixSums importance_of_text(std::shared_ptr<const WeightSource> source, LoadOptions load, const std::string& file,
                               int64_t chunks);

}  // namespace millrace
