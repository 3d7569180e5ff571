// The config, tensor names and tensor shapes that a file of a given shape would hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/gguf_writer.h"
#include "formats/synthetic_shapes.h"

namespace millrace {

struct SyntheticTensor {
  enum class Kind { Matrix, Norm, FaintNorm, Small, Decay, RopeFactors, Shifts };  // Shifts: zeros in I64
  std::string name;
  std::vector<int64_t> shape;
  Kind kind = Kind::Matrix;
  std::string role = {};  // GGUF's name of the tensor, if `name` differs
};

struct SyntheticBlueprint {
  GgufMetadataBuilder metadata;  // GGUF metadata; empty if hf_config is set
  std::string hf_config = {};    // for OPT and EAGLE-3, which have no GGUF convention
  std::vector<SyntheticTensor> tensors = {};
};

SyntheticBlueprint draw_blueprint(const SyntheticShape& shape);
SyntheticBlueprint draw_opt_blueprint(const SyntheticShape& shape);
SyntheticBlueprint draw_eagle3_blueprint(const SyntheticShape& shape);  // heads for a model of this shape
GgufMetadataBuilder synthetic_keys(const SyntheticShape& shape);        // without a vocabulary

}  // namespace millrace
