// Generates the OpenAPI document from the route table.
#include "base/ascii.h"
#include "base/build_id.h"
#include "server/answer_json.h"
#include "server/routes.h"

namespace millrace {
namespace {

Json content(const std::string& type, const Json& schema) { return {{type, {{"schema", schema}}}}; }

std::string operation_id(const Route& route) {
  std::string id = ascii_lower(route.method);
  for (const char c : route.path) id += is_ascii_alnum(c) ? c : '_';
  return id;
}

Schema anthropic_error_schema() {
  const auto details = Schema::object({{"error_code", Schema::string(), true}});
  const auto error =
      Schema::object({{"type", Schema::string(), true}, {"message", Schema::string(), true}, {"details", details}});
  return Schema::object({{"type", Schema::word({"error"}), true}, {"error", error, true}});
}

Json answers(const Route& route) {
  Json good{{"description", "the answer"}};
  good["content"] = content(route.answer_type, route.answer ? route.answer->document() : Json{{"type", "string"}});
  const bool ollama = route.path.starts_with("/api/"), anthropic = route.path.starts_with("/v1/messages");
  const char* stream = ollama ? "application/x-ndjson" : "text/event-stream";
  if (route.streams) good["content"][stream] = {{"schema", Json::object()}};  // events have many forms
  const std::string form = ollama ? "OllamaError" : anthropic ? "AnthropicError" : "Error";
  const Json error{{"description", "what is wrong"},
                   {"content", content("application/json", {{"$ref", "#/components/schemas/" + form}})}};
  Json responses{{"200", good}};
  if (route.path.starts_with("/health")) {
    responses["503"] = {{"description", "not ready"}, {"content", good["content"]}};
  } else {
    responses["5XX"] = error;
  }
  responses["4XX"] = error;
  return responses;
}

Json operation(const Route& route, bool keys) {
  Json json{{"operationId", operation_id(route)}, {"summary", route.summary}};
  if (keys && !route.open) json["security"] = Json::array({{{"bearer", Json::array()}}});
  const size_t brace = route.path.find('{');
  if (brace != std::string::npos) {
    const std::string name = route.path.substr(brace + 1, route.path.find('}') - brace - 1);
    json["parameters"] = Json::array(
        {{{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}, {"minLength", 1}}}}});
  }
  if (route.request) {
    json["requestBody"] = {{"required", true}, {"content", content("application/json", route.request->document())}};
  }
  json["responses"] = answers(route);
  return json;
}

}  // namespace

Json openapi_document(bool keys) {
  Json json{{"openapi", "3.1.0"},
            {"info", {{"title", "millrace"}, {"version", std::string(version())}}},
            {"paths", Json::object()},
            {"components",
             {{"schemas",
               {{"Error", error_schema().document()},
                {"AnthropicError", anthropic_error_schema().document()},
                {"OllamaError", Schema::object({{"error", Schema::string(), true}}).document()}}}}}};
  if (keys) json["components"]["securitySchemes"] = {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}}};
  for (const Route& route : routes()) {
    json["paths"][route.path][ascii_lower(route.method)] = operation(route, keys);
  }
  return json;
}

void answer_openapi(const std::shared_ptr<Call>& call, ApiContext& context) {
  call->reply(openapi_document(context.asks_for_keys));
}

}  // namespace millrace
