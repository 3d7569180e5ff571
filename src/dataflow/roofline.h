// Lower bound of a problem's time on this machine: the larger of moving its bytes and doing its arithmetic.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/linear.h"

namespace millrace {

struct Work {
  double bytes = 0;       // each input read once, each output written once
  double operations = 0;  // multiply and add count as two
};

Work work_of(const LinearProblem& problem);
Work work_of(const GroupedLinearProblem& problem);
Work work_of(const AttentionProblem& problem);

double roof_us(const LinearProblem& problem, const Hardware& hardware);
double roof_us(const GroupedLinearProblem& problem, const Hardware& hardware);
double roof_us(const AttentionProblem& problem, const Hardware& hardware);

}  // namespace millrace
