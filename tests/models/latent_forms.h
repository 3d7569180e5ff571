// Latent attention in both forms, for the tests of both back-ends.
#pragma once

#include <algorithm>

#include "models/golden.h"

namespace millrace {

// Whether steps inside `work` ran latent_prompt.
template <class Work>
bool materialises(Runner& runner, const Work& work) {
  OpTimes times;
  runner.ops().observe(Ops::Mode::Measure, &times);
  work();
  runner.ops().observe(Ops::Mode::Run);
  return std::any_of(times.entries.begin(), times.entries.end(),
                     [](const auto& entry) { return entry.op == LatentPromptOp::kName; });
}

inline std::vector<std::string> files_of(const Golden& golden) {
  std::vector<std::string> files{golden.folder.string()};
  if (golden.has_gguf) files.push_back((golden.folder / "model.gguf").string());
  return files;
}

struct StepPart {
  int32_t past, rows;
};

// The logits of a step whose sequences compute some rows each of one text.
inline Matrix forward_parts(Runner& runner, const std::vector<int32_t>& tokens, const std::vector<StepPart>& parts) {
  const auto length = static_cast<int32_t>(tokens.size()), most = static_cast<int32_t>(parts.size()) * length;
  std::vector<BlockTable> tables;
  StepBatch step(most, std::ssize(parts), most);
  const auto add = [&](size_t i, int32_t past, int32_t rows) {
    step.add(std::span(tokens).subspan(past, rows), past, length, tables[i].pages(), StepBatch::Logits::All);
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    tables.push_back(runner.state().new_table(length));
    EXPECT_TRUE(tables[i].reserve(length));
    if (parts[i].past > 0) add(i, 0, parts[i].past);
  }
  runner.forward(step.batch());
  step.clear();
  for (size_t i = 0; i < parts.size(); ++i) add(i, parts[i].past, parts[i].rows);
  return runner.forward(step.batch());
}

inline std::vector<Golden> latent_goldens() {
  std::vector<Golden> some;
  for (const Golden& golden : all_goldens()) {
    for (const char* architecture : {"deepseek", "glm4_moe_lite", "minicpm3"}) {
      if (golden.name.starts_with(architecture)) some.push_back(golden);
    }
  }
  return some;
}

}  // namespace millrace
