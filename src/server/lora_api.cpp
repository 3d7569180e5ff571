// POST /v1/load_lora_adapter and /v1/unload_lora_adapter, with vLLM's fields and status codes.
#include <algorithm>
#include <filesystem>

#include "server/api.h"
#include "server/requests/fields.h"
#include "server/served_model.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct LoadLoraRequest {
  std::string name, path;
  bool in_place = false;
};

const Fields<LoadLoraRequest>& load_lora_fields() {
  using R = LoadLoraRequest;
  static const Fields<R> fields{
      {required_field<R>("lora_name", Schema::string().about("the name that requests give as their model"), &R::name),
       required_field<R>("lora_path", Schema::string().about("a PEFT folder or a GGUF file below --lora-dir"),
                         &R::path),
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

ServedModel& adapted_model(ApiContext& context) {
  if (context.models.size() > 1) fail_request("adapters are for servers with one model");
  context.model.require_ready();
  return context.model;
}

}  // namespace

void answer_load_lora(const std::shared_ptr<Call>& call, ApiContext& context) {
  const LoadLoraRequest r = load_lora_fields().read(call->body());
  ServedModel& model = adapted_model(context);
  if (r.name.empty() || r.path.empty()) fail_request("Both 'lora_name' and 'lora_path' must be provided.");
  const fs::path path = allowed_path(context.lora_dir, r.path);
  if (std::find(model.names().begin(), model.names().end(), r.name) != model.names().end())
    fail_field("lora_name", "invalid_value", "'{}' is the name of the model itself", r.name);
  if (!r.in_place && model.find_adapter(r.name) != nullptr) {
    fail_field("lora_name", "already_loaded",
               "The lora adapter '{}' has already been loaded. If you want to load the adapter in place, set "
               "'load_inplace' to True.",
               r.name);
  }
  try {
    model.service().load_adapter(r.name, path);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::OutOfMemory || e.kind() == ErrorKind::Busy) throw;
    throw ApiError({e.kind() == ErrorKind::NotFound ? 404 : 400, e.what(), "lora_path", "bad_adapter"});
  }
  reply_text(*call, fmt::format("Success: LoRA adapter '{}' added successfully.", r.name));
}

void answer_unload_lora(const std::shared_ptr<Call>& call, ApiContext& context) {
  const UnloadLoraRequest r = unload_lora_fields().read(call->body());
  ServedModel& model = adapted_model(context);
  if (!model.service().unload_adapter(r.name)) {
    throw ApiError({404, fmt::format("The lora adapter '{}' cannot be found.", r.name), "lora_name", "not_found"});
  }
  reply_text(*call, fmt::format("Success: LoRA adapter '{}' removed successfully.", r.name));
}

Schema load_lora_schema() { return load_lora_fields().schema(); }
Schema unload_lora_schema() { return unload_lora_fields().schema(); }

}  // namespace millrace
