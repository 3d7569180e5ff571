// Ollama's endpoints about models: /api/tags, /api/show, /api/ps, /api/version, /api/pull, /api/delete.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/build_id.h"
#include "server/api.h"
#include "server/cascade.h"
#include "server/infill.h"
#include "server/ollama_json.h"
#include "server/requests/ollama_request.h"
#include "server/task_queue.h"
#include "store/catalogue.h"
#include "store/store.h"
#include "text/answer/answer_format.h"

namespace millrace {
namespace {

struct Size {
  int64_t bytes = 0, parameters = 0;
  std::string format;  // the number format of most bytes
};

Size size_of(const WeightSource& source) {
  Size size;
  std::map<std::string, int64_t> by_format;
  for (const TensorInfo& tensor : source.tensors()) {
    size.bytes += static_cast<int64_t>(tensor.bytes);
    size.parameters += element_count(tensor.shape).value_or(0);
    by_format[tensor.dtype_name] += static_cast<int64_t>(tensor.bytes);
  }
  const auto most = std::max_element(by_format.begin(), by_format.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != by_format.end()) size.format = most->first;
  return size;
}

std::string in_words(int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  return count >= 1e9 ? fmt::format("{:.1f}B", count / 1e9) : fmt::format("{:.2f}M", count / 1e6);
}

Json details(const ServedModel& model, const Size& size) {
  const std::string& family = model.runner().model().config().architecture;
  const bool gguf = model.runner().source().gguf() != nullptr;
  return {{"parent_model", ""},
          {"format", gguf ? "gguf" : "safetensors"},
          {"family", family},
          {"families", Json::array({family})},
          {"parameter_size", in_words(size.parameters)},
          {"quantization_level", size.format}};
}

// Computing the checksum of the weights would read all of them; the id is enough to tell models apart.
std::string digest(const std::string& name) { return fmt::format("{:016x}{:048x}", std::hash<std::string>()(name), 0); }

// A model that is not loaded has no size and details yet.
Json ollama_model_json(const ServedModel& model, const std::string& name) {
  if (model.state() != ServedModel::State::Ready) {
    return {{"name", name}, {"model", name},          {"modified_at", ollama_time(model.created())},
            {"size", 0},    {"digest", digest(name)}, {"details", {{"format", ""}, {"family", ""}}}};
  }
  const Size size = size_of(model.runner().source());
  return {{"name", name},       {"model", name},          {"modified_at", ollama_time(model.created())},
          {"size", size.bytes}, {"digest", digest(name)}, {"details", details(model, size)}};
}

Json capabilities(const ServedModel& model) {
  if (model.runner().model().pools()) return Json::array({"embedding"});
  Json list = Json::array({"completion", "embedding"});
  if (can_infill(*model.text().tokenizer)) list.push_back("insert");
  if (!model.has_template()) return list;
  list.push_back("tools");
  if (answer_format(model.template_source(false)).reasons) list.push_back("thinking");
  return list;
}

Json model_info(const ServedModel& model, const Size& size) {
  const DecoderConfig& c = model.runner().model().config();
  const auto key = [&](const char* name) { return c.architecture + "." + name; };
  return {{"general.architecture", c.architecture},
          {"general.parameter_count", size.parameters},
          {key("context_length"), c.context},
          {key("embedding_length"), c.hidden},
          {key("block_count"), c.layers},
          {key("attention.head_count"), c.heads},
          {key("attention.head_count_kv"), c.kv_heads},
          {"tokenizer.ggml.vocab_size", c.vocab}};
}

// Streams the states of a download, or answers with the last one.
void pull(Call& call, const CatalogueEntry& entry, bool stream, const std::function<bool()>& cancelled) {
  const std::string name(entry.name);
  const auto tell = [&](const Json& line) {
    if (!stream) return;
    call.event(line);
    call.flush();
  };
  if (stream) call.begin_events();
  tell({{"status", "pulling manifest"}});
  const std::string what = "pulling " + name;
  const auto state = [&](uint64_t done, uint64_t total) {
    tell({{"status", what}, {"digest", name}, {"total", total}, {"completed", done}});
  };
  state(0, entry.bytes);
  FetchSettings settings = fetch_settings();
  uint64_t told = 0;
  settings.progress = [&](uint64_t done, uint64_t total) {
    if (done < told + total / 100 || total == 0) return;
    told = done;
    state(done, total);
  };
  pull_model(name, cancelled, settings);
  state(entry.bytes, entry.bytes);
  const Json last{{"status", "success"}};
  if (!stream) return call.reply(last);
  tell(last);
  call.end_events();
}

}  // namespace

std::string ollama_time(int64_t unix_seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", fmt::gmtime(static_cast<std::time_t>(unix_seconds)));
}

std::string ollama_time() {
  const auto now = std::chrono::system_clock::now();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1000000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)), micros);
}

std::string without_latest(const std::string& name) {
  constexpr std::string_view kTag = ":latest";
  return name.ends_with(kTag) ? name.substr(0, name.size() - kTag.size()) : name;
}

void check_ollama_name(const ServedModel& model, const std::string& name) {
  const auto& names = model.names();
  const auto is = [&](const std::string& one) { return std::find(names.begin(), names.end(), one) != names.end(); };
  if (name.empty() || is(name) || is(without_latest(name))) return;
  if (model.find_adapter(without_latest(name)) != nullptr) return;
  throw ApiError({404, fmt::format("model '{}' not found", name.substr(0, 200)), "model", "model_not_found"});
}

void answer_ollama_tags(const std::shared_ptr<Call>& call, ApiContext& context) {
  if (context.models.size() == 1) context.model.require_ready();
  Json models = Json::array();
  if (context.cascade != nullptr) {
    const auto large = std::static_pointer_cast<ServedModel>(context.models.peek(context.cascade->large));
    models.push_back(ollama_model_json(*large, context.cascade->name));
  }
  for (size_t i = 0; i < context.models.size(); ++i) {
    const auto model = std::static_pointer_cast<ServedModel>(context.models.peek(i));
    for (const std::string& name : context.models.names(i)) models.push_back(ollama_model_json(*model, name));
  }
  call->reply(Json{{"models", models}});
}

void answer_ollama_ps(const std::shared_ptr<Call>& call, ApiContext& context) {
  if (context.models.size() == 1) context.model.require_ready();
  Json models = Json::array();
  for (size_t i = 0; i < context.models.size(); ++i) {
    const auto model = std::static_pointer_cast<ServedModel>(context.models.peek(i));
    if (model->state() != ServedModel::State::Ready) continue;
    Json json = ollama_model_json(*model, model->id());
    const bool host = model->runner().rank().device().is_host();
    json["size_vram"] = host ? 0 : json["size"].get<int64_t>();
    json["context_length"] = model->context();
    json["expires_at"] = "2318-01-01T00:00:00Z";  // never
    models.push_back(json);
  }
  call->reply(Json{{"models", models}});
}

void answer_ollama_show(const std::shared_ptr<Call>& call, ApiContext& context) {
  const OllamaNameRequest r = ollama_show_fields().read(call->body());
  const ServedModel& model = context.model;
  model.require_ready();
  if (call->cascade == nullptr) check_ollama_name(model, r.model);  // of a cascade: the small model
  const Size size = size_of(model.runner().source());
  call->reply(Json{{"modelfile", "FROM " + model.id()},
                   {"parameters", ""},
                   {"template", model.has_template() ? model.template_source(false) : ""},
                   {"details", details(model, size)},
                   {"model_info", model_info(model, size)},
                   {"capabilities", capabilities(model)},
                   {"modified_at", ollama_time(model.created())}});
}

void answer_ollama_version(const std::shared_ptr<Call>& call, ApiContext&) {
  call->reply(Json{{"version", std::string(version())}});
}

namespace {

void require_name(const OllamaNameRequest& r) {
  if (r.model.empty()) fail_field("model", "missing_required_parameter", "'model' is required");
}

}  // namespace

void answer_ollama_pull(const std::shared_ptr<Call>& call, ApiContext& context) {
  const OllamaNameRequest r = ollama_pull_fields().read(call->body());
  require_name(r);
  const CatalogueEntry* entry = find_in_catalogue(without_latest(r.model));
  if (entry == nullptr) {
    throw ApiError(
        {404, fmt::format("'{}' is not a name that `millrace models` lists", r.model.substr(0, 200)), "model", ""});
  }
  context.downloads.post([call, entry, stream = r.stream, &models = context.models] {
    const auto cancelled = [&] { return call->exchange().gone() || models.closed(); };
    try {
      pull(*call, *entry, stream, cancelled);
    } catch (const Error& e) {
      call->fail({500, e.what(), "", ""});
    } catch (const std::exception& e) {
      call->fail({500, std::string("internal error: ") + e.what(), "", ""});
    }
  });
}

void answer_ollama_delete(const std::shared_ptr<Call>& call, ApiContext& context) {
  const OllamaNameRequest r = ollama_show_fields().read(call->body());
  require_name(r);
  const std::string name = without_latest(r.model);
  if (context.models.find(name)) {
    throw ApiError({409, fmt::format("model '{}' is served here and cannot be deleted", name), "model", ""});
  }
  context.downloads.post([call, name, &models = context.models] {
    try {
      remove_model(name, [&] { return call->exchange().gone() || models.closed(); });
      call->reply(HttpReply{});
    } catch (const Error& e) {
      const bool unknown = e.kind() == ErrorKind::NotFound || e.kind() == ErrorKind::Usage;
      call->fail({unknown ? 404 : 500, e.what(), "model", ""});
    } catch (const std::exception& e) {
      call->fail({500, std::string("internal error: ") + e.what(), "", ""});
    }
  });
}

}  // namespace millrace
