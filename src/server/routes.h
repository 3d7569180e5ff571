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
  bool cascades = false;          // a cascade can answer
  bool streams = false;           // answers with events if the request has "stream": true
  std::optional<Schema> request;  // the body
  std::optional<Schema> answer;   // nullopt: not JSON
  std::string answer_type = "application/json";
  // Where the request names its model. InBody: only for POST. Required: there, and a server with several has no
  // default.
  enum class Model { InBody, Required, InQuery, None };
  Model model = Model::InBody;

  bool chooses_model() const { return model != Model::None && (model != Model::InBody || method == "POST"); }
  bool matches(std::string_view asked) const;
};

const std::vector<Route>& routes();

// The routes of an address, one per method. A path without {name} goes before one that matches it, too.
std::vector<const Route*> routes_at(std::string_view address);

// The address that a mistyped one probably means: without "/v1" or with it twice, with a slash too many; "": none.
std::string similar_address(std::string_view path);

// By address, and for shared addresses by the header that Anthropic's clients send.
Protocol protocol_of(const HttpRequest& request);

// The OpenAPI document. `keys`: the server requires API keys.
Json openapi_document(bool keys);

}  // namespace millrace
