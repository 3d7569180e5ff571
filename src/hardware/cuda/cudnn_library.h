// cuDNN's library, found when the program runs. Its front-end is headers that call the functions by their names: this
// room has functions of those names, which hand the calls on.
#pragma once

namespace millrace {

bool has_cudnn();

}  // namespace millrace
