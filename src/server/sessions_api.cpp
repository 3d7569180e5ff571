// GET /engine/sessions: sessions whose clients run tools, with the place of their state and what they took.
#include "server/agent_sessions.h"
#include "server/answer_json.h"
#include "server/api.h"
#include "server/served_model.h"

namespace millrace {
namespace {

constexpr size_t kMostListed = 100;  // of a model

const char* place_word(ParkPlace place) {
  switch (place) {
    case ParkPlace::Device:
      return "device";
    case ParkPlace::Memory:
      return "memory";
    case ParkPlace::Disk:
      return "disk";
    case ParkPlace::None:
      break;
  }
  return "none";
}

Json session_view(const ServedModel& model, const AgentSessions::Session& session, const ParkedStates::Found& found) {
  const size_t tokens = session.tokens.size();
  const char* state = session.running > 0 ? "running" : session.waits ? "parked" : "ended";
  return {{"id", session.id},
          {"model", session.adapter != nullptr ? session.adapter->name : model.id()},
          {"state", state},
          {"idle_seconds", session.idle_seconds},
          {"tokens", tokens},
          {"kept_tokens", found.tokens},
          {"kept_in", place_word(found.place)},
          {"ledger", ledger_json(session.ledger)}};
}

}  // namespace

void answer_sessions(const std::shared_ptr<Call>& call, ApiContext& context) {
  Json sessions = Json::array();
  ParkStats sum;
  for (size_t i = 0; i < context.models.size(); ++i) {
    const auto model = std::static_pointer_cast<ServedModel>(context.models.peek(i));
    const bool loaded = context.models.status(i).state == ModelTable::State::Loaded;
    if (!loaded || model->state() != ServedModel::State::Ready) continue;
    const auto listed = model->sessions().list(call->client, kMostListed);
    std::vector<Service::ParkedTokens> parked;
    for (const auto& session : listed) parked.push_back({session.adapter, session.tokens});
    const auto places = model->service().parked_places(parked);
    for (size_t k = 0; k < listed.size(); ++k) sessions.push_back(session_view(*model, listed[k], places[k]));
    sum += model->service().stats().parked;
  }
  call->reply({{"sessions", std::move(sessions)},
               {"parked",
                {{"device", {{"states", sum.pages}}},
                 {"memory", {{"states", sum.in_memory}, {"bytes", sum.memory_bytes}}},
                 {"disk", {{"states", sum.on_disk}, {"bytes", sum.disk_bytes}}},
                 {"saved", sum.saved},
                 {"restored", sum.restored},
                 {"dropped", sum.dropped}}}});
}

Schema sessions_answer_schema() {
  const auto count = [] { return Schema::integer(0); };
  const auto tier = Schema::object({{"states", count(), true}, {"bytes", count()}});
  const auto session = Schema::object({{"id", Schema::string(), true},
                                       {"model", Schema::string(), true},
                                       {"state", Schema::word({"running", "parked", "ended"}), true},
                                       {"idle_seconds", Schema::number(0), true},
                                       {"tokens", count(), true},
                                       {"kept_tokens", count(), true},
                                       {"kept_in", Schema::word({"device", "memory", "disk", "none"}), true},
                                       {"ledger", ledger_schema(), true}});
  const auto parked = Schema::object({{"device", tier, true},
                                      {"memory", tier, true},
                                      {"disk", tier, true},
                                      {"saved", count(), true},
                                      {"restored", count(), true},
                                      {"dropped", count(), true}});
  return Schema::object({{"sessions", Schema::array(session), true}, {"parked", parked, true}});
}

}  // namespace millrace
