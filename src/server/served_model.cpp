#include "server/served_model.h"

#include <algorithm>
#include <ctime>

#include "server/grammar_vocabulary.h"
#include "server/page/engine_view.h"
#include "server/requests/api_error.h"

namespace millrace {

ServedModel::ServedModel(std::vector<std::string> names, const ServiceOptions& options, ModelLoader loader, State state)
    : names_(std::move(names)),
      options_(options),
      created_(std::time(nullptr)),
      loader_(std::move(loader)),
      state_(state) {}

void ServedModel::load(const MakeRoom& make_room) {
  state_ = State::Loading;
  try {
    finish_loading(loader_(make_room));
    state_ = State::Ready;
  } catch (const std::exception& e) {
    const std::lock_guard lock(mutex_);
    problem_ = e.what();
    state_ = State::Failed;
    throw;
  }
}

void ServedModel::finish_loading(LoadedModel loaded) {
  loaded_ = std::move(loaded);
  dataflow_ = dataflow_view(*loaded_.runner);
  if (loaded_.text.chat) {
    plain_.emplace(loaded_.text.chat->sources.choose(false));
    const std::string& tools = loaded_.text.chat->sources.choose(true);
    if (&tools != &loaded_.text.chat->sources.choose(false)) with_tools_.emplace(tools);
  }
  grammars_ = std::make_unique<GrammarCompiler>(grammar_vocabulary(loaded_.text, vocab()));
  if (loaded_.drafter) options_.engine.draft_with(*loaded_.drafter);
  service_ = std::make_unique<Service>(*loaded_.runner, options_);
}

ServedModel::State ServedModel::state() const {
  const State state = state_;
  return state == State::Ready && !service_->problem().empty() ? State::Failed : state;
}

std::string ServedModel::problem() const {
  if (state_ == State::Ready) return service_->problem();
  const std::lock_guard lock(mutex_);
  return problem_;
}

bool ServedModel::drain(std::chrono::milliseconds patience) {
  if (state_ != State::Ready) return true;
  state_ = State::Draining;
  return service_->drain(patience);
}

void ServedModel::require_ready() const {
  switch (state()) {
    case State::Ready:
      return;
    case State::Unloaded:
      throw ApiError({503, "the model is not loaded; a request that names it loads it", "", "not_loaded"});
    case State::Loading:
      throw ApiError({503, "the model is still loading; /health/ready says when it is there", "", "loading"});
    case State::Draining:
      throw ApiError({503, "the server is shutting down", "", "shutting_down"});
    case State::Failed:
      throw ApiError({503, "the model cannot be used: " + problem(), "", "load_failed"});
  }
}

void ServedModel::check_name(const std::string& model) const {
  if (model.empty() || std::find(names_.begin(), names_.end(), model) != names_.end()) return;
  if (find_adapter(model) == nullptr) throw_unknown_model(model);
}

std::shared_ptr<const Adapter> ServedModel::find_adapter(const std::string& name) const {
  return state() == State::Ready ? service_->find_adapter(name) : nullptr;
}

std::string shown_name(const Call& call, const ServedModel& model) {
  return call.adapter != nullptr ? call.adapter->name : model.id();
}

void check_model(const Call& call, const ServedModel& model, const std::string& name) {
  model.require_ready();
  if (call.cascade == nullptr) model.check_name(name);
}

void throw_unknown_model(const std::string& name) {
  throw ApiError({404, fmt::format("The model '{}' does not exist here; /v1/models has the list", name.substr(0, 200)),
                  "model", "model_not_found"});
}

Service& ServedModel::service() const { return *service_; }
const TextModel& ServedModel::text() const { return loaded_.text; }
const Runner& ServedModel::runner() const { return *loaded_.runner; }
int32_t ServedModel::context() const { return static_cast<int32_t>(loaded_.runner->options().context); }
int32_t ServedModel::vocab() const { return static_cast<int32_t>(loaded_.runner->model().config().vocab); }

bool ServedModel::has_template() const { return plain_.has_value(); }

const std::string& ServedModel::template_source(bool with_tools) const {
  return loaded_.text.chat->sources.choose(with_tools);
}

RenderedChat ServedModel::render(Json context) const {
  if (!has_template()) {
    fail_field("messages", "no_chat_template", "this model has no chat template; use /v1/completions");
  }
  for (const auto& [name, text] : loaded_.text.chat->special_tokens.items()) {
    if (!context.contains(name)) context[name] = text;
  }
  const auto tools = context.find("tools");
  const bool with_tools = tools != context.end() && tools->is_array() && !tools->empty();
  try {
    return (with_tools && with_tools_ ? *with_tools_ : *plain_).render_chat(context, loaded_.text.chat->special_tokens);
  } catch (const Error& e) {
    fail_field("messages", "chat_template", "the model's chat template cannot show this conversation: {}", e.what());
  }
}

}  // namespace millrace
