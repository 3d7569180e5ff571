// A model with its engine, templates and grammars. It loads in the background while the server already answers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/runner.h"
#include "engine/service.h"
#include "engine/text_model.h"
#include "grammar/grammar_compiler.h"
#include "server/agent_sessions.h"
#include "server/call.h"
#include "server/model_pool.h"
#include "server/requests/json.h"

namespace millrace {

struct LoadedModel {
  TextModel text;
  std::unique_ptr<Runner> runner;
  std::unique_ptr<Drafter> drafter;  // null: no drafts
};

using ModelLoader = std::function<LoadedModel(const MakeRoom&)>;

class ServedModel : public PooledModel {
 public:
  enum class State { Unloaded, Loading, Ready, Failed, Draining };

  // `state`: Unloaded, or Loading if the load is about to begin.
  ServedModel(std::vector<std::string> names, const ServiceOptions& options, ModelLoader loader, State state);
  ServedModel(const ServedModel&) = delete;

  void load(const MakeRoom& make_room) override;

  State state() const;          // Failed: loading failed, or the device is lost
  std::string problem() const;  // why it failed
  bool drain(std::chrono::milliseconds patience);

  const std::string& id() const { return names_.front(); }
  const std::vector<std::string>& names() const { return names_; }
  int64_t created() const { return created_; }

  // The functions below throw ApiError 503 while the model is not ready.
  void require_ready() const;
  // 404 for another name than the model's own and those of its adapters; an empty name is accepted.
  void check_name(const std::string& model) const;
  bool has_adapters() const { return state() == State::Ready && !service_->adapters().empty(); }
  std::shared_ptr<const Adapter> find_adapter(const std::string& name) const;  // null: none of this name is loaded
  Service& service() const;
  const TextModel& text() const;
  int32_t context() const;
  int32_t vocab() const;
  const Runner& runner() const;
  const Json& dataflow() const { return dataflow_; }  // the chosen kernels, for the page
  GrammarCompiler& grammars() const { return *grammars_; }
  AgentSessions& sessions() { return sessions_; }

  // Renders the model's chat template. Throws ApiError 400 if there is none or it raises an error.
  RenderedChat render(Json context) const;
  bool has_template() const;
  const std::string& template_source(bool with_tools) const;

 private:
  void finish_loading(LoadedModel loaded);

  std::vector<std::string> names_;
  ServiceOptions options_;
  int64_t created_;
  ModelLoader loader_;
  std::atomic<State> state_;
  mutable std::mutex mutex_;
  std::string problem_;
  LoadedModel loaded_;
  Json dataflow_;
  std::optional<ChatTemplate> plain_, with_tools_;  // parsed once
  std::unique_ptr<GrammarCompiler> grammars_;
  AgentSessions sessions_;
  std::unique_ptr<Service> service_;
};

// The name that answers carry: the adapter's if the call chose one.
std::string shown_name(const Call& call, const ServedModel& model);

// Throws ApiError unless the model is ready and has this name. A cascade has chosen it under its own name.
void check_model(const Call& call, const ServedModel& model, const std::string& name);

[[noreturn]] void throw_unknown_model(const std::string& name);  // ApiError 404

}  // namespace millrace
