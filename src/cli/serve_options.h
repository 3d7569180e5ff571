// The options of `millrace serve`. Those of the server itself are read into ApiServerOptions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/cascade_options.h"
#include "cli/draft_options.h"
#include "cli/model_options.h"
#include "server/api_server.h"

namespace millrace {

struct ServeOptions {
  ModelOptions model;
  DraftOptions draft;
  CascadeOptions cascade;
  ApiServerOptions server;
  std::string config, key_file, log_format = "auto";
  std::vector<std::string> models, names;
  std::string models_memory;
  std::string park_memory = "1GB", park_disk = "8GB";
  int load_seconds = 60;
  int64_t sequences = 32, kv_tokens = 32768;
  bool batch_invariant = false, no_prefix_cache = false;
  int64_t body_mb = 8;
  int drain_seconds = 30, request_seconds = 60;
};

void add_serve_options(CLI::App& verb, ServeOptions& o);

}  // namespace millrace
