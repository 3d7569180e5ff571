// The makers that registry.cpp lists: one per architecture file.
#pragma once

#include "models/model.h"

namespace millrace {

using ModelMaker = std::unique_ptr<Model>(const WeightSource& source, Weights& weights);

ModelMaker make_llama;

// The output matrix, or the embedding where the file ties the two.
const Linear* output_head(Weights& weights, const DecoderConfig& config);

}  // namespace millrace
