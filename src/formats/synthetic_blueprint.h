// What a file of a given shape would hold: its config and the names and shapes of its tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/gguf_writer.h"
#include "formats/synthetic_shapes.h"

namespace millrace {

struct SyntheticTensor {
  enum class Kind { Matrix, Norm, Small, RopeFactors };
  std::string name;
  std::vector<int64_t> shape;
  Kind kind = Kind::Matrix;
  std::string role = {};  // GGUF's name for it, where the tensor's own is another
};

struct SyntheticBlueprint {
  GgufMetadataBuilder metadata;  // as GGUF has it; empty where hf_config is used
  std::string hf_config = {};    // OPT has no GGUF convention: it is described as Hugging Face does
  std::vector<SyntheticTensor> tensors = {};
};

SyntheticBlueprint draw_blueprint(const SyntheticShape& shape);

}  // namespace millrace
