// The output items of a response, rebuilt from its events: a response that is cancelled in the middle keeps them.
#pragma once

#include "server/requests/json.h"

namespace millrace {

class ResponseOutput {
 public:
  void add(const Json& event);  // in their order; others than those of items change nothing
  Json stopped() const;         // the items; one that has not ended is incomplete

 private:
  Json items_ = Json::array();
};

}  // namespace millrace
