// Whether drafts make generation faster, or at least not slower: the engine generates the same number of tokens without
// and with a drafter in turns. Tokens are drawn at temperature 1 behind random prompts, so a model with random weights
// gives texts without repetition, where look-ups find nothing.
#pragma once

#include "engine/measure/benchmark.h"

namespace millrace {

struct DraftTurns {
  BenchmarkCase test;
  struct Turn {
    double without = 0, with = 0;          // tokens per second
    double cpu_without = 0, cpu_with = 0;  // tokens per second of the process's CPU time
  };
  std::vector<Turn> turns;
  uint64_t drafted = 0, accepted = 0;  // tokens over all turns

  double median(double Turn::*rate) const;
  // The median over the turns of the rate with drafts, divided by that without.
  double ratio() const;
  double cpu_ratio() const;
};

// `repetitions` turns after an untimed one. The prompts, of `depth` tokens, are computed before the time begins.
DraftTurns compare_drafts(Runner& runner, Drafter& drafter, const BenchmarkCase& test, int repetitions);

}  // namespace millrace
