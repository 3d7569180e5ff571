// The C interface: requests and the server.
#include <filesystem>
#include <future>

#include "api/guard.h"
#include "api/handles.h"
#include "api/load.h"
#include "api/versioned.h"

namespace millrace {
namespace {

// Rows of alternatives of equal length, as the interface promises.
void lay_out_logprobs(millrace_request& r, size_t& top_count) {
  r.logprobs.clear(), r.top_tokens.clear(), r.top_logprobs.clear();
  top_count = 0;
  for (const TokenLogprobs& one : r.delta.logprobs) {
    r.logprobs.push_back(one.chosen.logprob);
    top_count = std::max(top_count, one.top.size());
  }
  for (const TokenLogprobs& one : r.delta.logprobs) {
    for (size_t i = 0; i < top_count; ++i) {
      const bool given = i < one.top.size();
      r.top_tokens.push_back(given ? one.top[i].token : -1);
      r.top_logprobs.push_back(given ? one.top[i].logprob : kImpossibleLogprob);
    }
  }
}

millrace_delta view(millrace_request& r) {
  size_t top_count = 0;
  lay_out_logprobs(r, top_count);
  const StreamDelta& d = r.delta;
  r.tool_calls = d.tool_calls.empty() ? "" : to_text(d.tool_calls);
  return {.size = sizeof(millrace_delta),
          .choice = d.choice,
          .finish = d.finish,
          .text = d.text.c_str(),
          .text_bytes = d.text.size(),
          .reasoning = d.reasoning.c_str(),
          .reasoning_bytes = d.reasoning.size(),
          .tool_calls = r.tool_calls.empty() ? nullptr : r.tool_calls.c_str(),
          .tokens = d.tokens.data(),
          .token_count = d.tokens.size(),
          .logprobs = r.logprobs.empty() ? nullptr : r.logprobs.data(),
          .top_count = top_count,
          .top_tokens = r.top_tokens.data(),
          .top_logprobs = r.top_logprobs.data()};
}

std::string client_name(const std::string& model, const char* given) {
  if (given != nullptr) return given;
  const std::filesystem::path path(model);
  return path.extension() == ".gguf" ? path.stem().string() : path.has_filename() ? path.filename().string() : model;
}

std::unique_ptr<ApiServer> start_server(const std::string& model, const millrace_model_options& m,
                                        const millrace_server_options& o) {
  if (o.port < 0 || o.port > 65535) fail(ErrorKind::Usage, "port {}: from 0 to 65535", o.port);
  ApiServerOptions options;
  if (o.host != nullptr) options.http.host = o.host;
  options.http.port = static_cast<uint16_t>(o.port);
  options.names = {client_name(model, o.name)};
  if (o.api_keys != nullptr) options.keys.add(o.api_keys, "api_keys");
  options.service.engine.prefix_cache = m.no_prefix_cache == 0;
  for (const auto& [name, path] : lora_files(m)) {
    if (name == options.names.front()) fail(ErrorKind::Usage, "lora '{}': this is the name of the model", name);
    options.adapters.push_back({.name = name, .path = path});
  }
  auto server = std::make_unique<ApiServer>(std::move(options));
  millrace_model_options plain = m;  // the server loads the adapters
  plain.load_loras |= m.lora_count > 0 ? 1 : 0;
  plain.lora_count = 0;
  auto loaded = std::make_shared<LoadedModel>(load_model(model, plain));
  server->start([loaded] { return std::move(*loaded); });
  while (server->model().state() == ServedModel::State::Loading)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (const std::string problem = server->model().problem(); !problem.empty())
    fail(ErrorKind::Unsupported, "{}", problem);
  return server;
}

}  // namespace
}  // namespace millrace

using namespace millrace;

millrace_status millrace_submit(millrace_model* model, const millrace_request_options* options,
                                millrace_request** out) {
  return guarded([&] {
    *required(out, "out") = nullptr;
    millrace_request_options defaults;
    millrace_request_options_init(&defaults);
    const millrace_request_options o = known_fields(required(options, "options"), defaults);
    const auto& served = required(model, "model")->served;
    auto request = std::make_unique<millrace_request>();
    request->stream = std::make_unique<RequestStream>(served, prepare_request(o, *served),
                                                      RequestStream::Wake{o.whole != 0, o.on_ready, o.on_ready_user});
    *out = request.release();
  });
}

millrace_status millrace_next(millrace_request* request, int32_t timeout_ms, millrace_delta* delta) {
  return guarded([&] {
    const auto patience = timeout_ms < 0 ? std::nullopt : std::optional(std::chrono::milliseconds(timeout_ms));
    switch (required(request, "request")->stream->next(patience, request->delta)) {
      case RequestStream::Got::End:
        return MILLRACE_END;
      case RequestStream::Got::Nothing:
        return MILLRACE_TIMEOUT;
      case RequestStream::Got::Delta:
        break;
    }
    give(view(*request), delta);
    return MILLRACE_OK;
  });
}

void millrace_cancel(millrace_request* request) {
  if (request != nullptr) guarded([&] { request->stream->cancel(); });
}

void millrace_request_free(millrace_request* request) {
  guarded([&] { delete request; });
}

millrace_status millrace_request_usage(const millrace_request* request, millrace_usage* usage) {
  return guarded([&] { give(required(request, "request")->stream->usage(), usage); });
}

millrace_status millrace_server_start(const char* model, const millrace_model_options* model_options,
                                      const millrace_server_options* options, millrace_server** out) {
  return guarded([&] {
    *required(out, "out") = nullptr;
    millrace_model_options model_defaults;
    millrace_model_options_init(&model_defaults);
    millrace_server_options defaults;
    millrace_server_options_init(&defaults);
    *out = new millrace_server{start_server(required(model, "model"), known_fields(model_options, model_defaults),
                                            known_fields(options, defaults))};
  });
}

int32_t millrace_server_port(const millrace_server* server) { return server == nullptr ? 0 : server->server->port(); }

void millrace_server_stop(millrace_server* server, int32_t drain_ms) {
  if (server == nullptr) return;
  guarded([&] { server->server->stop(std::chrono::milliseconds(std::max(drain_ms, 0))); });
  guarded([&] { delete server; });
}
