// Loads models for the library.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/c_api.h"
#include "server/served_model.h"

namespace millrace {

// Runs on the calling thread, which also calls options.progress.
LoadedModel load_model(const std::string& model, const millrace_model_options& options);
std::vector<LoadOptions::AdapterPath> lora_files(const millrace_model_options& options);
ServiceOptions service_options(const millrace_model_options& options);

std::shared_ptr<ServedModel> load_for_library(const std::string& model, const millrace_model_options& options);

}  // namespace millrace
