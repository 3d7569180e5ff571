// The matrices of adapter files as numbers.
#pragma once

#include <string>
#include <vector>

#include "formats/tensor_info.h"

namespace millrace {

using Floats = std::vector<float>;  // a matrix, row after row

// All rows of a tensor. Numbers that are not finite are an error. `origin`: of the file, for errors.
Floats read_matrix(const TensorInfo& tensor, const std::string& origin);
// Numbers that the scale makes infinite are an error. `module`: of the matrix.
void scale(Floats& matrix, double by, const std::string& module, const std::string& origin);
Floats transposed(const Floats& matrix, int64_t rows, int64_t cols);

}  // namespace millrace
