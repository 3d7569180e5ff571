#include "server/model_choice.h"

#include "server/served_model.h"
#include "server/task_queue.h"

namespace millrace {
namespace {

ApiProblem refusal_problem(ModelPool::Refusal why, const std::string& name, const std::string& problem) {
  switch (why) {
    case ModelPool::Refusal::Loading:
      return {503, fmt::format("the model '{}' is still loading, or others need its memory; try again", name), "",
              "loading"};
    case ModelPool::Refusal::Busy:
      return {503, "too many requests wait for models to be loaded; try again", "", "queue_full"};
    case ModelPool::Refusal::Failed:
      return {503, fmt::format("the model '{}' cannot be loaded: {}", name, problem), "model", "load_failed"};
    case ModelPool::Refusal::Closed:
      break;
  }
  return {503, "the server is shutting down", "", "shutting_down"};
}

}  // namespace

void with_lease(const std::shared_ptr<Call>& call, ModelPool& models, TaskQueue& workers, size_t model,
                std::function<void(std::shared_ptr<PooledModel>)> go_on) {
  const auto ready = [call, &workers, go_on = std::move(go_on)](const ModelPool::Lease& lease) {
    if (call->exchange().gone()) return;
    workers.post([call, go_on, lease] { guarded(*call, [&] { go_on(lease); }); });
  };
  const auto refused = [call, id = models.names(model).front()](ModelPool::Refusal why, const std::string& problem) {
    call->fail(refusal_problem(why, id, problem));
  };
  models.acquire(model, ready, refused);
}

ServedModel& leased_model(const std::shared_ptr<PooledModel>& lease) { return static_cast<ServedModel&>(*lease); }

void with_model(const std::shared_ptr<Call>& call, ModelPool& models, TaskQueue& workers, size_t model,
                std::function<void(ServedModel&)> go_on) {
  with_lease(call, models, workers, model, [call, go_on = std::move(go_on)](const ModelPool::Lease& lease) {
    call->model_lease = lease;
    go_on(leased_model(lease));
  });
}

}  // namespace millrace
