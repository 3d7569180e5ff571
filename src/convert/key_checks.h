// Conditions on settings that several architectures share, and keys that follow from the declared tensors.
#pragma once

#include "convert/architecture_keys.h"
#include "models/blocks.h"

namespace millrace {

void require_activation(ArchitectureKeys& k, Activation expected, std::string_view key = "hidden_act");
void refuse_window(ArchitectureKeys& k);

// Writes the window, and which layers have one unless every `pattern`-th has none, which llama.cpp assumes. `usual`:
// the pattern of transformers.
void add_pattern(ArchitectureKeys& k, int64_t pattern, int64_t usual);
// Writes the window and which layers have one. False, and no key: none has.
bool add_listed_windows(ArchitectureKeys& k, int64_t pattern);
// Writes the base of the RoPE in layers with a window. GGUF has no keys for its scaling.
void add_local_rope(ArchitectureKeys& k, double usual_base);

// Layers below `leading` are dense, and of the others all that are not at a multiple of `step`.
void require_experts(ArchitectureKeys& k, int64_t leading, int64_t step = 1);
int64_t leading_dense(const ArchitectureKeys& k);
void add_shared_width(ArchitectureKeys& k);

constexpr int64_t kSoftmax = 1, kSigmoid = 2;  // expert_gating_func

}  // namespace millrace
