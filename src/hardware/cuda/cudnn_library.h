// cuDNN, loaded at run time. Its header-only front-end calls the library's functions by name; cudnn_library.cpp defines
// functions of these names that forward to the loaded library.
#pragma once

namespace millrace {

bool has_cudnn();

}  // namespace millrace
