#include "hardware/cuda/cudnn_library.h"

#include <cudnn_graph.h>
#include <dlfcn.h>

#include <climits>
#include <initializer_list>
#include <string>

namespace millrace {
namespace {

// libcudnn is a shim over sublibraries, and aborts the process if the graph library is missing. So check for that
// first.
bool is_whole(void* front) {
  char folder[PATH_MAX] = {};
  if (::dlinfo(front, RTLD_DI_ORIGIN, folder) != 0) return false;
  constexpr auto kGraphs = "libcudnn_graph.so.9";
  return ::dlopen((std::string(folder) + "/" + kGraphs).c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr ||
         ::dlopen(kGraphs, RTLD_NOW | RTLD_LOCAL) != nullptr;
}

void* library() {
  static void* const loaded = [] {
    void* front = nullptr;
    for (const char* name :
         {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9", "/usr/local/cuda/lib/libcudnn.so.9"}) {
      if (front == nullptr) front = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    return front != nullptr && is_whole(front) ? front : nullptr;
  }();
  return loaded;
}

// Called only if has_cudnn(); every cuDNN 9 exports these functions.
template <auto function, class... Args>
auto forward(const char* name, Args... args) {
  static const auto found = reinterpret_cast<decltype(function)>(::dlsym(library(), name));
  return found(args...);
}

}  // namespace

bool has_cudnn() { return library() != nullptr; }

}  // namespace millrace

using millrace::forward;

size_t cudnnGetVersion() { return forward<&cudnnGetVersion>("cudnnGetVersion"); }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return forward<&cudnnGetErrorString>("cudnnGetErrorString", status);
}
void cudnnGetLastErrorString(char* message, size_t size) {
  forward<&cudnnGetLastErrorString>("cudnnGetLastErrorString", message, size);
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return forward<&cudnnCreate>("cudnnCreate", handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return forward<&cudnnDestroy>("cudnnDestroy", handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return forward<&cudnnSetStream>("cudnnSetStream", handle, stream);
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  return forward<&cudnnGetStream>("cudnnGetStream", handle, stream);
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  return forward<&cudnnBackendCreateDescriptor>("cudnnBackendCreateDescriptor", type, descriptor);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return forward<&cudnnBackendDestroyDescriptor>("cudnnBackendDestroyDescriptor", descriptor);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return forward<&cudnnBackendFinalize>("cudnnBackendFinalize", descriptor);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pointers) {
  return forward<&cudnnBackendExecute>("cudnnBackendExecute", handle, plan, pointers);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  return forward<&cudnnBackendSetAttribute>("cudnnBackendSetAttribute", descriptor, name, type, count, elements);
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t* count, void* elements) {
  return forward<&cudnnBackendGetAttribute>("cudnnBackendGetAttribute", descriptor, name, type, most, count, elements);
}
