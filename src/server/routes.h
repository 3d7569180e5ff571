// The table of all routes. Dispatch and the OpenAPI document both use it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api.h"
#include "server/requests/schema.h"

namespace millrace {

struct Route {
  std::string method, path;  // {name} matches characters other than '/'; {model} any: models of a hub are owner/name
  std::string summary;
  Endpoint* endpoint = nullptr;
  bool open = false;              // no API key required
  bool at_once = false;           // quick: runs on the I/O thread, independent of busy workers
  bool streams = false;           // answers with events if the request has "stream": true
  std::optional<Schema> request;  // the body
  std::optional<Schema> answer;   // nullopt: not JSON
  std::string answer_type = "application/json";
  enum class Model { InBody, InQuery, None };  // where the request names its model; InBody: only for POST
  Model model = Model::InBody;

  bool chooses_model() const { return model == Model::InQuery || (model == Model::InBody && method == "POST"); }
  bool matches(std::string_view asked) const;
};

const std::vector<Route>& routes();

// By address, and for shared addresses by the header that Anthropic's clients send.
Protocol protocol_of(const HttpRequest& request);

// The OpenAPI document. `keys`: the server requires API keys.
Json openapi_document(bool keys);

}  // namespace millrace
