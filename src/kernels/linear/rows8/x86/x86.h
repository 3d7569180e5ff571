// The x86-64 methods of the rows8 layout, one file per instruction set.
#pragma once

#include <span>

#include "kernels/linear/rows8/kernel.h"

namespace millrace {

std::span<const Rows8Method> amx_methods();
std::span<const Rows8Method> vnni_methods();
std::span<const Rows8Method> avx2_methods();

}  // namespace millrace
