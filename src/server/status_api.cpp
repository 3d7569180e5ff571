// Endpoints about the server itself: models, health, metrics.
#include "base/percent.h"
#include "server/answer_json.h"
#include "server/api.h"
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

Json model_json(const ServedModel& model, const std::string& name) {
  Json json{{"id", name}, {"object", "model"}, {"created", model.created()}, {"owned_by", "millrace"}};
  if (model.state() == ServedModel::State::Ready) json["max_model_len"] = model.context();
  return json;
}

const char* state_word(ServedModel::State state) {
  switch (state) {
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
  const auto& names = context.model.names();
  Json json{{"object", "list"}, {"data", Json::array()}};
  for (const auto& name : names) {
    json["data"].push_back(anthropic ? anthropic_model(context.model, name) : model_json(context.model, name));
  }
  if (anthropic) {
    json.erase("object");
    json.update({{"has_more", false}, {"first_id", names.front()}, {"last_id", names.back()}});
  }
  call->reply(json);
}

void answer_model(const std::shared_ptr<Call>& call, ApiContext& context) {
  // SDKs escape the slash in a name.
  const std::string name = percent_decode(call->request().path.substr(std::string_view("/v1/models/").size()));
  context.model.check_name(name);
  const std::string& shown = name.empty() ? context.model.id() : name;
  const bool anthropic = call->protocol == Protocol::Anthropic;
  call->reply(anthropic ? anthropic_model(context.model, shown) : model_json(context.model, shown));
}

void answer_live(const std::shared_ptr<Call>& call, ApiContext&) { call->reply(Json{{"status", "alive"}}); }

void answer_ready(const std::shared_ptr<Call>& call, ApiContext& context) {
  const auto state = context.model.state();
  HttpReply reply{.status = state == ServedModel::State::Ready ? 200 : 503,
                  .body = to_text({{"status", state_word(state)}})};
  if (reply.status == 503) reply.headers.emplace_back("Retry-After", "1");
  call->reply(std::move(reply));
}

void answer_health(const std::shared_ptr<Call>& call, ApiContext& context) { answer_ready(call, context); }

void answer_metrics(const std::shared_ptr<Call>& call, ApiContext& context) {
  std::optional<EngineStats> stats;
  if (context.model.state() == ServedModel::State::Ready) stats = context.model.service().stats();
  call->reply(HttpReply{.body = context.metrics.text(stats ? &*stats : nullptr, context.connections()),
                        .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

Schema model_answer_schema() {
  return Schema::object({{"id", Schema::string(), true},
                         {"object", Schema::word({"model"}), true},
                         {"created", Schema::integer(0), true},
                         {"owned_by", Schema::string(), true},
                         {"max_model_len", Schema::integer(1)}});
}

Schema models_answer_schema() {
  return Schema::object(
      {{"object", Schema::word({"list"}), true}, {"data", Schema::array(model_answer_schema()), true}});
}

Schema health_answer_schema() {
  return Schema::object({{"status", Schema::word({"alive", "loading", "ready", "failed", "draining"}), true}});
}

}  // namespace millrace
