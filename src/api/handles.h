// The objects behind the handles of the C interface.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/request_stream.h"
#include "server/api_server.h"

struct millrace_model {
  std::shared_ptr<millrace::ServedModel> served;  // shared with its requests
};

struct millrace_request {
  std::unique_ptr<millrace::RequestStream> stream;
  // The last delta: millrace_delta points into it.
  millrace::StreamDelta delta;
  std::string tool_calls;
  std::vector<float> logprobs, top_logprobs;
  std::vector<int32_t> top_tokens;
};

struct millrace_server {
  std::unique_ptr<millrace::ApiServer> server;
};
