// Endpoints about the server itself: models, health, metrics.
#include "base/percent.h"
#include "server/adapter_list.h"
#include "server/answer_json.h"
#include "server/api.h"
#include "server/cascade.h"
#include "server/metrics.h"
#include "server/ollama_json.h"
#include "server/served_model.h"

namespace millrace {
namespace {

// The list in Anthropic's form, for clients that send its version.
Json anthropic_model(const ServedModel& model, const std::string& name) {
  const std::string created = ollama_time(model.created());
  return {{"type", "model"}, {"id", name}, {"display_name", name}, {"created_at", created}};
}

// A model's state for clients. A failed load may be tried again; the problem stays until one succeeds.
const char* listed_state(const ModelTable::Row& row) {
  switch (row.state) {
    case ModelTable::State::Loaded:
      return "loaded";
    case ModelTable::State::Loading:
      return "loading";
    default:
      return row.problem.empty() ? "unloaded" : "failed";
  }
}

Json model_json(const ModelPool& models, size_t index, const std::string& name) {
  const ModelTable::Row row = models.status(index);
  const auto model = std::static_pointer_cast<ServedModel>(models.peek(index));
  Json json{{"id", name},
            {"object", "model"},
            {"created", model->created()},
            {"owned_by", "millrace"},
            {"state", listed_state(row)}};
  if (const std::string& first = models.names(index).front(); name != first) json["alias_of"] = first;
  if (row.bytes > 0) json["bytes"] = row.bytes;
  if (!row.problem.empty()) json["problem"] = row.problem;
  if (model->state() == ServedModel::State::Ready) {
    json["bytes"] = model->runner().memory().total();
    json["max_model_len"] = model->context();
  }
  return json;
}

// A cascade is loaded when both of its models are.
const char* cascade_state(const ModelPool& models, const Cascade& cascade) {
  const std::string_view small = listed_state(models.status(cascade.small));
  const std::string_view large = listed_state(models.status(cascade.large));
  for (const char* state : {"failed", "loading", "unloaded"}) {
    if (small == state || large == state) return state;
  }
  return "loaded";
}

Json cascade_model_json(const ModelPool& models, const Cascade& cascade) {
  const auto large = std::static_pointer_cast<ServedModel>(models.peek(cascade.large));
  return {{"id", cascade.name},
          {"object", "model"},
          {"created", large->created()},
          {"owned_by", "millrace"},
          {"state", cascade_state(models, cascade)},
          {"cascade",
           {{"small", models.names(cascade.small).front()},
            {"large", models.names(cascade.large).front()},
            {"threshold", sent_logprob(cascade.threshold)}}}};
}

// In vLLM's form: a model with a parent.
Json adapter_json(const ModelPool& models, const ServedAdapter& adapter) {
  const auto model = std::static_pointer_cast<ServedModel>(models.peek(adapter.model));
  Json json{{"id", adapter.name},     {"object", "model"},    {"created", model->created()},
            {"owned_by", "millrace"}, {"state", "unloaded"},  // as its model
            {"root", adapter.path},   {"parent", model->id()}};
  if (const auto loaded = model->find_adapter(adapter.name))
    json.update({{"state", "loaded"}, {"bytes", loaded->bytes}, {"max_model_len", model->context()}});
  return json;
}

// Several models: the server is ready, since it loads them on demand.
ServedModel::State server_state(const ApiContext& context) {
  if (context.models.size() == 1) return context.model.state();
  return context.models.closed() ? ServedModel::State::Draining : ServedModel::State::Ready;
}

const char* state_word(ServedModel::State state) {
  switch (state) {
    case ServedModel::State::Unloaded:
    case ServedModel::State::Loading:
      return "loading";
    case ServedModel::State::Ready:
      return "ready";
    case ServedModel::State::Failed:
      return "failed";
    case ServedModel::State::Draining:
      return "draining";
  }
  return "failed";
}

}  // namespace

void answer_models(const std::shared_ptr<Call>& call, ApiContext& context) {
  const bool anthropic = call->protocol == Protocol::Anthropic;
  Json json{{"object", "list"}, {"data", Json::array()}};
  if (context.cascade != nullptr) {
    json["data"].push_back(anthropic ? anthropic_model(context.model, context.cascade->name)
                                     : cascade_model_json(context.models, *context.cascade));
  }
  for (size_t i = 0; i < context.models.size(); ++i) {
    for (const std::string& name : context.models.names(i)) {
      json["data"].push_back(anthropic ? anthropic_model(context.model, name) : model_json(context.models, i, name));
    }
  }
  for (const ServedAdapter& adapter : context.adapters.all()) {
    json["data"].push_back(anthropic ? anthropic_model(context.model, adapter.name)
                                     : adapter_json(context.models, adapter));
  }
  if (anthropic) {
    json.erase("object");
    const Json &first = json["data"].front()["id"], &last = json["data"].back()["id"];
    json.update({{"has_more", false}, {"first_id", first}, {"last_id", last}});
  }
  call->reply(json);
}

void answer_model(const std::shared_ptr<Call>& call, ApiContext& context) {
  // SDKs escape the slash in a name.
  const std::string name = percent_decode(call->request().path.substr(std::string_view("/v1/models/").size()));
  const bool anthropic = call->protocol == Protocol::Anthropic;
  if (context.cascade != nullptr && (name.empty() || name == context.cascade->name)) {
    return call->reply(anthropic ? anthropic_model(context.model, context.cascade->name)
                                 : cascade_model_json(context.models, *context.cascade));
  }
  const auto found = name.empty() ? std::optional<size_t>(0) : context.models.find(name);
  if (const auto adapter = found ? std::nullopt : context.adapters.find(name)) {
    return call->reply(anthropic ? anthropic_model(context.model, name) : adapter_json(context.models, *adapter));
  }
  if (!found) throw_unknown_model(name);
  const std::string& shown = name.empty() ? context.models.names(0).front() : name;
  call->reply(anthropic ? anthropic_model(context.model, shown) : model_json(context.models, *found, shown));
}

void answer_live(const std::shared_ptr<Call>& call, ApiContext&) { call->reply(Json{{"status", "alive"}}); }

void answer_ready(const std::shared_ptr<Call>& call, ApiContext& context) {
  const auto state = server_state(context);
  HttpReply reply{.status = state == ServedModel::State::Ready ? 200 : 503,
                  .body = to_text({{"status", state_word(state)}})};
  if (reply.status == 503) reply.headers.emplace_back("Retry-After", "1");
  call->reply(std::move(reply));
}

void answer_health(const std::shared_ptr<Call>& call, ApiContext& context) { answer_ready(call, context); }

void answer_metrics(const std::shared_ptr<Call>& call, ApiContext& context) {
  std::optional<EngineStats> stats;
  for (size_t i = 0; i < context.models.size(); ++i) {
    const auto model = std::static_pointer_cast<ServedModel>(context.models.peek(i));
    const bool loaded = context.models.status(i).state == ModelTable::State::Loaded;
    if (!loaded || model->state() != ServedModel::State::Ready) continue;
    if (!stats) stats.emplace();
    *stats += model->service().stats();
  }
  call->reply(HttpReply{.body = context.metrics.text(stats ? &*stats : nullptr, context.connections()),
                        .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

Schema model_answer_schema() {
  return Schema::object({{"id", Schema::string(), true},
                         {"object", Schema::word({"model"}), true},
                         {"created", Schema::integer(0), true},
                         {"owned_by", Schema::string(), true},
                         {"state", Schema::word({"loaded", "loading", "unloaded", "failed"}), true},
                         {"bytes", Schema::integer(0)},
                         {"problem", Schema::string()},
                         {"alias_of", Schema::string()},
                         {"root", Schema::string()},
                         {"parent", Schema::string()},
                         {"max_model_len", Schema::integer(1)},
                         {"cascade", Schema::object({{"small", Schema::string(), true},
                                                     {"large", Schema::string(), true},
                                                     {"threshold", Schema::number(), true}})}});
}

Schema models_answer_schema() {
  return Schema::object(
      {{"object", Schema::word({"list"}), true}, {"data", Schema::array(model_answer_schema()), true}});
}

Schema health_answer_schema() {
  return Schema::object({{"status", Schema::word({"alive", "loading", "ready", "failed", "draining"}), true}});
}

}  // namespace millrace
