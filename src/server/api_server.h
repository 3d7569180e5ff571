// The whole server: HTTP in front, the API on workers, the model and its engine behind.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/service.h"
#include "server/access_log.h"
#include "server/adapter_list.h"
#include "server/api.h"
#include "server/api_keys.h"
#include "server/cascade.h"
#include "server/http/http_server.h"
#include "server/kept_streams.h"
#include "server/metrics.h"
#include "server/model_pool.h"
#include "server/served_model.h"
#include "server/stored_responses.h"
#include "server/task_queue.h"

namespace millrace {

// Loads a model with the adapters of the command line that no client has unloaded or replaced.
using AdaptedLoader = std::function<LoadedModel(const MakeRoom&, const std::vector<ServedAdapter>&)>;

struct ModelSpec {
  std::vector<std::string> names;  // the first is its id
  AdaptedLoader load;
  std::string problem = {};  // already known: it cannot be loaded as it is now
};

struct ApiServerOptions {
  HttpServerOptions http;
  ServiceOptions service;
  std::vector<std::string> names;  // names of the only model; the first is its id
  std::vector<ModelSpec> models;   // or several, each loaded when a request names it
  std::optional<Cascade> cascade;  // of two of these models; requests without a name go to it
  ModelPool::Options pool;         // for several
  std::vector<ServedAdapter> adapters;
  ApiKeys keys;                   // empty: no key required
  std::vector<std::string> cors;  // allowed origins; "*": all
  AccessLog::Format log = AccessLog::Format::Json;
  int workers = 2;
  std::string lora_dir;  // as in ApiContext
};

struct Route;

class ApiServer {
 public:
  explicit ApiServer(ApiServerOptions options);
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;

  // Answers requests from now on. `loader` loads the only model, in the background.
  void start(std::function<LoadedModel()> loader = {});

  // Accepts no more requests, lets running ones finish within `patience`, and stops.
  void stop(std::chrono::milliseconds patience);

  uint16_t port() const { return http_->port(); }
  const ServedModel& model() const { return *only_; }  // of a server with one model

 private:
  void on_request(std::shared_ptr<HttpExchange> exchange);  // on the I/O thread
  void dispatch(const std::shared_ptr<Call>& call);
  void choose_model(const Route& route, const std::shared_ptr<Call>& call);
  bool names_cascade(const Call& call, const std::string& name) const;
  void run_with(const Route& route, const std::shared_ptr<Call>& call, ServedModel& model);
  void run_without_choice(const Route& route, const std::shared_ptr<Call>& call);
  void make_pool();
  ModelLoader with_adapters(size_t model, AdaptedLoader load);
  void place(const ServedAdapter& adapter, Runner& runner);
  std::optional<size_t> find_model(const Call& call, const std::string& name) const;
  void on_model(const ModelPool::Event& event);
  bool several() const { return !options_.models.empty(); }
  HttpHeaders common_headers(const HttpRequest& request, const std::string& id) const;
  void preflight(Call& call) const;

  ApiServerOptions options_;
  AccessLog log_;
  Metrics metrics_;
  AdapterList adapters_;
  std::unique_ptr<HttpServer> http_;  // destroyed after models and workers, which may still answer
  std::unique_ptr<ModelPool> models_;
  std::shared_ptr<ServedModel> only_;  // null: several
  std::function<LoadedModel()> load_only_;
  std::unique_ptr<TaskQueue> workers_, downloads_;
  std::shared_ptr<StoredResponses> stored_ = std::make_shared<StoredResponses>();
  std::unique_ptr<KeptStreams> kept_;  // destroyed before the workers that it uses
  bool stopped_ = false;
};

}  // namespace millrace
