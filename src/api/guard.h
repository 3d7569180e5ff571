// The border of the C interface: exceptions become a status and the thread's message.
#pragma once

#include <new>
#include <string>

#include "base/error.h"
#include "millrace/c_api.h"
#include "server/requests/api_error.h"

namespace millrace {

std::string& last_error();  // of this thread
millrace_status status_of(ErrorKind kind);
millrace_status status_of(const ApiProblem& problem);

template <class Work>
millrace_status guarded(Work work) noexcept {
  const auto report = [](millrace_status status, const char* what) noexcept {
    try {
      last_error() = what;
    } catch (...) {  // no memory for the message: the status says enough
      last_error().clear();
    }
    return status;
  };
  try {
    if constexpr (std::is_same_v<decltype(work()), millrace_status>)
      return work();
    else
      return work(), MILLRACE_OK;
  } catch (const Error& e) {
    return report(status_of(e.kind()), e.what());
  } catch (const ApiError& e) {
    return report(status_of(e.problem()), e.what());
  } catch (const std::bad_alloc&) {
    return report(MILLRACE_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return report(MILLRACE_INTERNAL, e.what());
  } catch (...) {
    return report(MILLRACE_INTERNAL, "an unknown error");
  }
}

template <class Pointer>
Pointer required(Pointer pointer, const char* name) {
  if (pointer == nullptr) fail(ErrorKind::Usage, "{} is NULL", name);
  return pointer;
}

}  // namespace millrace
