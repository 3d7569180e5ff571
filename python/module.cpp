// The Python module under millrace/: models, requests and the server over the C++ interface. Every call that computes
// or waits releases the GIL.
#include <millrace/millrace.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/eventfd.h>

#include "search_module.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Ids = std::vector<int32_t>;
using Text = std::optional<std::string>;

const char* text_or_null(const Text& text) { return text ? text->c_str() : nullptr; }

// Loads without the GIL. The progress function takes it, and a signal (Ctrl-C) or an exception there ends the loading.
template <class Make>
auto make_with_progress(millrace::ModelSettings& settings, const nb::object& progress, Make make) {
  std::optional<nb::python_error> raised;
  settings.progress = [&](int64_t done, int64_t total) {
    const nb::gil_scoped_acquire gil;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!progress.is_none()) progress(done, total);
      return true;
    } catch (nb::python_error& e) {
      raised.emplace(std::move(e));
      return false;
    }
  };
  try {
    const nb::gil_scoped_release free;
    return make();
  } catch (const millrace::Failure&) {
    if (raised) throw std::move(*raised);
    throw;
  }
}

// Pairs of name and path. Even an empty list lets more be loaded later.
void add_loras(const nb::handle& pairs, millrace::ModelSettings& s) {
  s.load_loras = true;
  for (auto& [name, path] : nb::cast<std::vector<std::pair<std::string, std::string>>>(pairs))
    s.loras.push_back({.path = std::move(path), .name = std::move(name)});
}

millrace::ModelSettings model_settings(const nb::kwargs& given) {
  millrace::ModelSettings s;
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    if (value.is_none()) continue;
    if (name == "device")
      s.device = nb::cast<std::string>(value);
    else if (name == "kv_type")
      s.kv_type = nb::cast<std::string>(value);
    else if (name == "chat_template")
      s.chat_template = nb::cast<std::string>(value);
    else if (name == "draft")
      s.draft = nb::cast<std::string>(value);
    else if (name == "threads")
      s.threads = nb::cast<int>(value);
    else if (name == "context")
      s.context = nb::cast<int64_t>(value);
    else if (name == "exact")
      s.exact = nb::cast<bool>(value);
    else if (name == "sequences")
      s.sequences = nb::cast<int>(value);
    else if (name == "kv_tokens")
      s.kv_tokens = nb::cast<int64_t>(value);
    else if (name == "prefix_cache")
      s.prefix_cache = nb::cast<bool>(value);
    else if (name == "batch_invariant")
      s.batch_invariant = nb::cast<bool>(value);
    else if (name == "lora")
      add_loras(value, s);
    else
      throw nb::type_error(("unknown option '" + name + "'").c_str());
  }
  return s;
}

// A part of an answer as a tuple: choice, finish, text, reasoning, tool calls (JSON or None), tokens, logprobs (None,
// or for each token its log-probability and the alternatives).
nb::object delta_tuple(const millrace_delta& d) {
  nb::list tokens;
  nb::object logprobs = nb::none();
  for (size_t i = 0; i < d.token_count; ++i) tokens.append(d.tokens[i]);
  if (d.logprobs != nullptr) {
    nb::list rows;
    for (size_t i = 0; i < d.token_count; ++i) {
      nb::list top;
      for (size_t j = i * d.top_count; j < (i + 1) * d.top_count; ++j)
        if (d.top_tokens[j] >= 0) top.append(nb::make_tuple(d.top_tokens[j], d.top_logprobs[j]));
      rows.append(nb::make_tuple(d.tokens[i], d.logprobs[i], top));
    }
    logprobs = rows;
  }
  return nb::make_tuple(d.choice, static_cast<int>(d.finish), nb::str(d.text, d.text_bytes),
                        nb::str(d.reasoning, d.reasoning_bytes),
                        d.tool_calls != nullptr ? nb::object(nb::str(d.tool_calls)) : nb::none(), tokens, logprobs);
}

class Request {
 public:
  explicit Request(millrace::Stream stream) : stream_(std::make_shared<millrace::Stream>(std::move(stream))) {}

  // The next part, None at the end, or False if nothing came within the time.
  nb::object next(int timeout_ms) {
    constexpr int kSignalsMs = 100;  // a blocked main thread looks for Ctrl-C this often
    while (true) {
      millrace_delta delta{};
      millrace_status status = MILLRACE_END;
      const int patience = timeout_ms < 0 ? kSignalsMs : timeout_ms;
      const auto stream = open();
      {
        const nb::gil_scoped_release free;
        status = stream->next(patience, delta);
      }
      if (status == MILLRACE_OK) return delta_tuple(delta);
      if (status == MILLRACE_END) return nb::none();
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (timeout_ms >= 0) return nb::bool_(false);
    }
  }
  void cancel() { open()->cancel(); }
  nb::object usage() {
    const millrace_usage u = open()->usage();
    return nb::make_tuple(u.prompt_tokens, u.cached_tokens, u.generated_tokens);
  }
  void close() {
    const auto last = std::move(stream_);
    if (last) last->cancel();
  }

 private:
  // A thread that waits in next() keeps the stream alive while another closes it.
  std::shared_ptr<millrace::Stream> open() {
    if (!stream_) throw nb::value_error("this request is closed");
    return stream_;
  }
  std::shared_ptr<millrace::Stream> stream_;
};

class Model {
 public:
  Model(const std::string& name, const nb::object& progress, const nb::kwargs& options) {
    millrace::ModelSettings settings = model_settings(options);
    model_ = make_with_progress(settings, progress,
                                [&] { return std::make_shared<millrace::LanguageModel>(name, settings); });
  }

  Request submit(const Text& prompt, const std::optional<Ids>& tokens, const Text& messages, const std::string& fields,
                 bool whole, int ready_fd, const Text& lora) {
    millrace_request_options o;
    millrace_request_options_init(&o);
    o.prompt = text_or_null(prompt);
    o.messages = text_or_null(messages);
    constexpr int32_t kNoToken = 0;
    if (tokens) o.tokens = tokens->empty() ? &kNoToken : tokens->data(), o.token_count = tokens->size();
    o.fields = fields.c_str();
    o.whole = whole ? 1 : 0;
    o.lora = text_or_null(lora);
    if (ready_fd >= 0) {  // without the GIL: an event loop reads the descriptor
      o.on_ready = [](void* fd) { eventfd_write(static_cast<int>(reinterpret_cast<intptr_t>(fd)), 1); };
      o.on_ready_user = reinterpret_cast<void*>(static_cast<intptr_t>(ready_fd));
    }
    const auto model = open();
    const nb::gil_scoped_release free;
    return Request(model->submit(o));
  }

  // Float32 of shape [tokens, columns], or [columns] for an embedding.
  nb::ndarray<float, nb::array_api, nb::device::cpu, nb::c_contig> compute(int kind, const Ids& tokens,
                                                                           const std::string& lora) {
    auto* values = new std::vector<float>;
    nb::capsule owner(values, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
    {
      const auto model = open();
      const nb::gil_scoped_release free;
      *values = model->compute(static_cast<millrace_vectors>(kind), tokens, lora);
    }
    if (kind == MILLRACE_EMBEDDING_MEAN || kind == MILLRACE_EMBEDDING_LAST || kind == MILLRACE_EMBEDDING)
      return {values->data(), {values->size()}, owner};
    return {values->data(), {tokens.size(), values->size() / tokens.size()}, owner};
  }

  nb::dict info() {
    const millrace_model_info i = open()->info();
    nb::dict d;
    d["vocabulary"] = i.vocabulary, d["hidden"] = i.hidden, d["context"] = i.context;
    d["has_chat_template"] = i.has_chat_template != 0, d["bos"] = i.bos, d["eos"] = i.eos;
    return d;
  }
  Ids tokenize(const std::string& text, bool add_special) {
    const auto model = open();
    const nb::gil_scoped_release free;
    return model->tokenize(text, add_special);
  }
  std::string detokenize(const Ids& tokens, bool skip_special) {
    const auto model = open();
    const nb::gil_scoped_release free;
    return model->detokenize(tokens, skip_special);
  }
  std::string render_chat(const std::string& messages, const std::string& fields) {
    const auto model = open();
    const nb::gil_scoped_release free;
    return model->render_chat(messages, fields);
  }
  void load_lora(const std::string& name, const std::string& path, bool replace) {
    const auto model = open();
    const nb::gil_scoped_release free;
    model->load_lora({.path = path, .name = name}, replace);
  }
  void unload_lora(const std::string& name) {
    const auto model = open();
    const nb::gil_scoped_release free;
    model->unload_lora(name);
  }
  std::vector<std::string> loras() {
    const auto model = open();
    const nb::gil_scoped_release free;
    return model->loras();
  }
  void close() {
    auto last = std::move(model_);
    const nb::gil_scoped_release free;
    last.reset();
  }

 private:
  // Calls that run while another thread closes the model keep it alive.
  std::shared_ptr<millrace::LanguageModel> open() {
    if (!model_) throw nb::value_error("this model is closed");
    return model_;
  }
  std::shared_ptr<millrace::LanguageModel> model_;
};

class Server {
 public:
  Server(const std::string& model, const std::string& host, int port, const Text& name, const Text& api_keys,
         const nb::object& progress, const nb::kwargs& model_options) {
    millrace::ModelSettings settings = model_settings(model_options);
    millrace_server_options o;
    millrace_server_options_init(&o);
    o.host = host.c_str();
    o.port = port;
    o.name = text_or_null(name);
    o.api_keys = text_or_null(api_keys);
    server_ =
        make_with_progress(settings, progress, [&] { return std::make_unique<millrace::Server>(model, settings, o); });
    port_ = server_->port();
  }
  int port() const { return port_; }
  void stop(int drain_ms) {
    const nb::gil_scoped_release free;
    if (const auto server = std::move(server_)) server->stop(drain_ms);
  }

 private:
  std::unique_ptr<millrace::Server> server_;
  int port_ = 0;
};

PyObject* exception_type(millrace_status status) {
  switch (status) {
    case MILLRACE_USAGE:
      return PyExc_ValueError;
    case MILLRACE_NOT_FOUND:
      return PyExc_FileNotFoundError;
    case MILLRACE_OUT_OF_MEMORY:
      return PyExc_MemoryError;
    case MILLRACE_NETWORK:
      return PyExc_ConnectionError;
    case MILLRACE_IO:
      return PyExc_OSError;
    default:
      return PyExc_RuntimeError;
  }
}

}  // namespace

NB_MODULE(_millrace, m) {
  nb::set_leak_warnings(false);  // an interpreter that exits while a thread waits leaves objects behind
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const millrace::Failure& e) {
      PyErr_SetString(exception_type(e.status()), e.what());
    }
  });
  m.attr("__version__") = millrace_version();
  m.def(
      "set_verbosity", [](int level) { millrace_set_verbosity(level); }, "level"_a);

  nb::class_<Request>(m, "Request")
      .def("next", &Request::next, "timeout_ms"_a = -1)
      .def("cancel", &Request::cancel)
      .def("usage", &Request::usage)
      .def("close", &Request::close);
  nb::class_<Model>(m, "Model")
      .def(nb::init<const std::string&, const nb::object&, const nb::kwargs&>(), "model"_a, "progress"_a = nb::none(),
           "options"_a)
      .def("submit", &Model::submit, "prompt"_a = nb::none(), "tokens"_a = nb::none(), "messages"_a = nb::none(),
           "fields"_a = "{}", "whole"_a = true, "ready_fd"_a = -1, "lora"_a = nb::none())
      .def("compute", &Model::compute, "kind"_a, "tokens"_a, "lora"_a = "")
      .def("load_lora", &Model::load_lora, "name"_a, "path"_a, "replace"_a = false)
      .def("unload_lora", &Model::unload_lora, "name"_a)
      .def("loras", &Model::loras)
      .def("info", &Model::info)
      .def("tokenize", &Model::tokenize, "text"_a, "add_special"_a = true)
      .def("detokenize", &Model::detokenize, "tokens"_a, "skip_special"_a = true)
      .def("render_chat", &Model::render_chat, "messages"_a, "fields"_a = "{}")
      .def("close", &Model::close);
  nb::class_<Server>(m, "Server")
      .def(nb::init<const std::string&, const std::string&, int, const Text&, const Text&, const nb::object&,
                    const nb::kwargs&>(),
           "model"_a, "host"_a, "port"_a, "name"_a = nb::none(), "api_keys"_a = nb::none(), "progress"_a = nb::none(),
           "options"_a)
      .def_prop_ro("port", &Server::port)
      .def("stop", &Server::stop, "drain_ms"_a = 30000);
  bind_search(m);
}
