// A problem given on a benchmark's command line as FORMAT:NxK:M, and the CPU layout and kernel for it.
#pragma once

#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "kernels/kernel_set.h"

namespace millrace {

inline const LinearKernel& find_kernel(std::string_view name) {
  for (const auto* kernel : cpu_kernels().of<LinearOp>()) {
    if (kernel->name() == name) return *kernel;
  }
  fail(ErrorKind::Usage, "no kernel '{}'", name);
}

inline LinearProblem read_problem(const char* text) {
  char format[16];
  long n = 0, k = 0, m = 0;
  if (std::sscanf(text, "%15[^:]:%ldx%ld:%ld", format, &n, &k, &m) != 4 || !dtype_from_name(format))
    fail(ErrorKind::Usage, "{}: expected FORMAT:NxK:M", text);
  return {*dtype_from_name(format), "", Precision::Fast, n, k, m};
}

// The first layout that the kernel accepts; stores it in the problem.
inline const LinearLayout& find_layout(LinearProblem& problem, const LinearKernel& kernel, const Hardware& hardware) {
  for (const auto* layout : cpu_kernels().layouts) {
    problem.layout = layout->name();
    if (layout->accepts(problem.format, problem.n, problem.k, hardware) && kernel.can_run(problem, hardware))
      return *layout;
  }
  fail(ErrorKind::Usage, "{} cannot run {}", kernel.name(), to_string(problem));
}

}  // namespace millrace
