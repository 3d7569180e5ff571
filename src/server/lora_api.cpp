// POST /v1/load_lora_adapter and /v1/unload_lora_adapter, with vLLM's fields and status codes.
#include <algorithm>
#include <filesystem>

#include "server/adapter_list.h"
#include "server/api.h"
#include "server/cascade.h"
#include "server/requests/fields.h"
#include "server/served_model.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct LoadLoraRequest {
  std::string name, path, model;
  bool in_place = false;
};

const Fields<LoadLoraRequest>& load_lora_fields() {
  using R = LoadLoraRequest;
  static const Fields<R> fields{
      {required_field<R>("lora_name", Schema::string().about("the name that requests give as their model"), &R::name),
       required_field<R>("lora_path", Schema::string().about("a PEFT folder or a GGUF file below --lora-dir"),
                         &R::path),
       field<R>("model", Schema::string().about("the model that the adapter changes; required if there are several"),
                &R::model),
       field<R>("load_inplace", Schema::boolean().unless_given(false).about("replace an adapter of this name"),
                &R::in_place)}};
  return fields;
}

struct UnloadLoraRequest {
  std::string name;
};

const Fields<UnloadLoraRequest>& unload_lora_fields() {
  using R = UnloadLoraRequest;
  static const Fields<R> fields{{required_field<R>("lora_name", Schema::string(), &R::name)}};
  return fields;
}

// Clients may name only adapters that the server's owner has put into one folder: a path is otherwise a way to probe
// and read any file of the machine.
fs::path allowed_path(const std::string& folder, const std::string& asked) {
  if (folder.empty())
    throw ApiError({403, "adapters are loaded over the API only from the folder of --lora-dir, which is not given",
                    "lora_path", "not_allowed"});
  std::error_code error;
  const fs::path base = fs::weakly_canonical(folder, error);
  const fs::path path = fs::weakly_canonical(base / asked, error);
  const bool inside = std::mismatch(base.begin(), base.end(), path.begin(), path.end()).first == base.end();
  if (error || !inside) throw ApiError({403, "lora_path is not below --lora-dir", "lora_path", "not_allowed"});
  if (!fs::exists(path, error))
    throw ApiError({404, fmt::format("No adapter found for '{}'", asked), "lora_path", "not_found"});
  return path;
}

void reply_text(Call& call, std::string text) {
  call.reply(HttpReply{.body = std::move(text), .content_type = "text/plain; charset=utf-8"});
}

// Names of models and adapters share a space.
void check_free(const LoadLoraRequest& r, const ApiContext& context) {
  if (context.models.find(r.name))
    fail_field("lora_name", "invalid_value", "'{}' is the name of {}", r.name,
               context.models.size() == 1 ? "the model itself" : "a model");
  if (context.cascade != nullptr && r.name == context.cascade->name)
    fail_field("lora_name", "invalid_value", "'{}' is the name of the cascade", r.name);
  const auto taken = context.adapters.find(r.name);
  if (!taken) return;
  const std::string& parent = context.models.names(taken->model).front();
  if (r.in_place && parent == context.model.id()) return;
  fail_field("lora_name", "already_loaded",
             "The lora adapter '{}' has already been loaded for the model '{}'. If you want to load the adapter in "
             "place, set 'load_inplace' to True.",
             r.name, parent);
}

}  // namespace

void answer_load_lora(const std::shared_ptr<Call>& call, ApiContext& context) {
  const LoadLoraRequest r = load_lora_fields().read(call->body());
  ServedModel& model = context.model;
  model.require_ready();
  const auto base = context.models.find(r.model.empty() ? model.id() : r.model);
  if (!base) fail_field("model", "invalid_value", "'{}' is not the name of a model", r.model);
  if (r.name.empty() || r.path.empty()) fail_request("Both 'lora_name' and 'lora_path' must be provided.");
  const fs::path path = allowed_path(context.lora_dir, r.path);
  check_free(r, context);
  try {
    model.service().load_adapter(r.name, path);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::OutOfMemory || e.kind() == ErrorKind::Busy) throw;
    throw ApiError({e.kind() == ErrorKind::NotFound ? 404 : 400, e.what(), "lora_path", "bad_adapter"});
  }
  context.adapters.put({.name = r.name, .path = path.string(), .model = *base, .from_client = true});
  reply_text(*call, fmt::format("Success: LoRA adapter '{}' added successfully.", r.name));
}

void answer_unload_lora(const std::shared_ptr<Call>& call, ApiContext& context) {
  const UnloadLoraRequest r = unload_lora_fields().read(call->body());
  const auto known = context.adapters.find(r.name);
  if (!known)
    throw ApiError({404, fmt::format("The lora adapter '{}' cannot be found.", r.name), "lora_name", "not_found"});
  const auto model = std::static_pointer_cast<ServedModel>(context.models.peek(known->model));
  if (model->state() == ServedModel::State::Loading) model->require_ready();  // it is about to bring the adapter
  context.adapters.remove(r.name);
  if (model->state() == ServedModel::State::Ready) model->service().unload_adapter(r.name);
  reply_text(*call, fmt::format("Success: LoRA adapter '{}' removed successfully.", r.name));
}

Schema load_lora_schema() { return load_lora_fields().schema(); }
Schema unload_lora_schema() { return unload_lora_fields().schema(); }

}  // namespace millrace
