// Starts the generation that answers a call. Behind a cascade these are one or two: the answer of the small model is
// held back until it is whole, and given up if the large model is to answer instead.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "server/api.h"
#include "server/generation.h"

namespace millrace {

struct PlannedAnswer {
  std::vector<Request> requests;
  std::unique_ptr<GenerationSink> sink;
  GenerationOptions options;
};

// Makes requests and sink for one model. Behind a cascade it runs once for each model that is asked, and must own what
// it uses.
using MakeAnswer = std::function<PlannedAnswer(const std::shared_ptr<Call>& call, ServedModel& model)>;

// `make` with its errors in the names of another protocol.
MakeAnswer with_names(MakeAnswer make, ApiProblem (*rename)(ApiProblem));

void start_answer(const std::shared_ptr<Call>& call, const ApiContext& context, MakeAnswer make);

}  // namespace millrace
