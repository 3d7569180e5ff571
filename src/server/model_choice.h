// Leads a call to one of the server's models.
#pragma once

#include <functional>
#include <memory>

#include "server/call.h"
#include "server/requests/api_error.h"

namespace millrace {

class ModelPool;
class PooledModel;
class ServedModel;
class TaskQueue;

// Goes on with a lease as soon as the model is loaded, on a worker. Answers with an error if the model cannot be had,
// or if `go_on` throws.
void with_lease(const std::shared_ptr<Call>& call, ModelPool& models, TaskQueue& workers, size_t model,
                std::function<void(std::shared_ptr<PooledModel> lease)> go_on);
ServedModel& leased_model(const std::shared_ptr<PooledModel>& lease);

// The same with a lease that the call holds from then on.
void with_model(const std::shared_ptr<Call>& call, ModelPool& models, TaskQueue& workers, size_t model,
                std::function<void(ServedModel&)> go_on);

// Runs a part of an endpoint and turns its exceptions into error answers.
template <class Work>
void guarded(Call& call, const Work& work) {
  try {
    work();
  } catch (const ApiError& e) {
    call.fail(e.problem());
  } catch (const Error& e) {
    call.fail(to_problem(e));
  } catch (const std::bad_alloc&) {
    call.fail({503, "out of memory for this request", "", "out_of_memory"});
  } catch (const std::exception& e) {
    call.fail({500, std::string("internal error: ") + e.what(), "", ""});
  }
}

}  // namespace millrace
