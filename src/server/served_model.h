// The model that is served: loaded in the background while the server already answers about its health.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/runner.h"
#include "engine/service.h"
#include "engine/text_model.h"
#include "grammar/grammar_compiler.h"
#include "server/json.h"

namespace millrace {

struct LoadedModel {
  TextModel text;
  std::unique_ptr<Runner> runner;
};

class ServedModel {
 public:
  enum class State { Loading, Ready, Failed, Draining };

  ServedModel(std::vector<std::string> names, const ServiceOptions& options);
  ~ServedModel();
  ServedModel(const ServedModel&) = delete;

  // Runs `loader` on a thread of its own; `done` hears how it went: an empty text, or why it failed.
  void load(std::function<LoadedModel()> loader, std::function<void(const std::string& problem)> done);

  State state() const;          // Failed: to load, or it runs on a device that is lost
  std::string problem() const;  // why it failed
  bool drain(std::chrono::milliseconds patience);

  const std::string& id() const { return names_.front(); }
  const std::vector<std::string>& names() const { return names_; }
  int64_t created() const { return created_; }

  // What follows throws ApiError 503 while the model is not ready.
  void require_ready() const;
  void check_name(const std::string& model) const;  // 404 for another model; empty is ours
  Service& service() const;
  const TextModel& text() const;
  int32_t context() const;
  int32_t vocab() const;
  const Runner& runner() const;
  const Json& dataflow() const { return dataflow_; }  // the kernels that were chosen, for the page
  GrammarCompiler& grammars() const { return *grammars_; }

  // The prompt that the model's chat template makes. Throws ApiError 400 where there is no template or it refuses.
  std::string render(Json context) const;
  bool has_template() const;
  const std::string& template_source(bool with_tools) const;

 private:
  void finish_loading(LoadedModel loaded);

  std::vector<std::string> names_;
  ServiceOptions options_;
  int64_t created_;
  std::atomic<State> state_{State::Loading};
  mutable std::mutex mutex_;
  std::string problem_;
  LoadedModel loaded_;
  Json dataflow_;
  std::optional<ChatTemplate> plain_, with_tools_;  // parsed once
  std::unique_ptr<GrammarCompiler> grammars_;
  std::unique_ptr<Service> service_;
  std::thread loader_;
};

}  // namespace millrace
