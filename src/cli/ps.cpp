// millrace ps: the models of a running server and their states.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "cli/load/load_client.h"
#include "cli/print_json.h"
#include "cli/read_text.h"
#include "cli/verb.h"
#include "engine/memory_plan.h"
#include "store/fetch_settings.h"
#include "store/http.h"

namespace millrace {
namespace {

constexpr size_t kLongestAnswer = 1 << 20;

struct PsOptions {
  std::string url = "http://127.0.0.1:8080", key_file;
  bool json = false;
};

nlohmann::json ask(const PsOptions& o) {
  const FetchSettings& settings = fetch_settings();
  HttpOptions options;
  options.ca_file = settings.ca_file;
  options.ca_folder = settings.ca_folder;
  options.cancelled = interrupted;
  std::vector<std::string> headers;
  if (!o.key_file.empty()) {
    const std::string text = read_file_or_stdin(o.key_file);
    headers.push_back("Authorization: Bearer " + std::string(ascii_trim(text.substr(0, text.find('\n')))));
  }
  const std::string url = base_url(o.url);
  const auto json = read_json(HttpClient(options).get_page(url + "/models", headers, kLongestAnswer).text);
  if (!json.is_object() || !json.contains("data") || !json["data"].is_array()) {
    fail(ErrorKind::Network, "{}/models: the answer is no list of models", url);
  }
  return json["data"];
}

void run(const PsOptions& o) {
  const nlohmann::json models = ask(o);
  if (o.json) return print_json({{"models", models}});
  const auto text = [](const nlohmann::json& model, const char* key) {
    const auto found = model.is_object() ? model.find(key) : model.end();
    return model.is_object() && found != model.end() && found->is_string() ? printable(found->get<std::string>()) : "";
  };
  fmt::print("{:<32} {:<9} {:>10}\n", "model", "state", "memory");
  for (const auto& model : models) {
    const bool sized = model.is_object() && model.contains("bytes") && model["bytes"].is_number_integer();
    const std::string problem = text(model, "problem"), other = text(model, "alias_of");
    if (!other.empty()) {
      fmt::print("{:<32} is {}\n", text(model, "id"), other);
      continue;
    }
    fmt::print("{:<32} {:<9} {:>10}{}\n", text(model, "id"), text(model, "state"),
               sized ? human_bytes(model["bytes"].get<int64_t>()) : "", problem.empty() ? "" : "  " + problem);
  }
}

}  // namespace

void add_ps(CLI::App& app) {
  auto* verb = app.add_subcommand("ps", "Show the models of a running server and which are loaded");
  auto o = std::make_shared<PsOptions>();
  verb->add_option("--url", o->url, "the server")->capture_default_str();
  verb->add_option("--api-key-file", o->key_file, "file whose first line is the API key");
  verb->add_flag("--json", o->json, "one JSON object on stdout and nothing else");
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
