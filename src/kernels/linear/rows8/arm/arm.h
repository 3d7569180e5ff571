// The aarch64 methods of the rows8 layout, one file per instruction set.
#pragma once

#include <span>

#include "kernels/linear/rows8/kernel.h"

namespace millrace {

std::span<const Rows8Method> bf16_methods();
std::span<const Rows8Method> i8mm_methods();
std::span<const Rows8Method> dotprod_methods();
std::span<const Rows8Method> neon_methods();

}  // namespace millrace
