// Keys and shapes that models with recurrent or convolution layers share.
#pragma once

#include "convert/architecture_keys.h"
#include "models/mamba2_mixer.h"

namespace millrace {

// The mixers as their tensors have them; the number of groups, which no tensor tells, as read.
Mamba2Shape mixer_of(const ConvertedModel& model, int64_t groups);
// Keys of the mixers. Refuses limits of the step, for which there is no key.
void add_mixer(ArchitectureKeys& keys, const Mamba2Shape& mixer);
int64_t mixer_groups(const ConvertedModel& model);

}  // namespace millrace
