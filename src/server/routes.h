// Every address of the server, said once: dispatch and the OpenAPI document read this table.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api.h"
#include "server/schema.h"

namespace millrace {

struct Route {
  std::string method, path;  // a path that ends in {name} takes anything there
  std::string summary;
  Endpoint* endpoint = nullptr;
  bool open = false;              // needs no API key
  bool at_once = false;           // quick: runs on the I/O thread, however busy the workers are
  bool streams = false;           // answers with events where the request says "stream": true
  std::optional<Schema> request;  // the body
  std::optional<Schema> answer;   // none: not JSON
  std::string answer_type = "application/json";

  bool matches(std::string_view asked) const;
};

const std::vector<Route>& routes();

// The document of all this at /openapi.json. `keys`: the server asks for API keys.
Json openapi_document(bool keys);

}  // namespace millrace
