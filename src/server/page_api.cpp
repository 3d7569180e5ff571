// The web page and the data of its live view.
#include "server/answer_json.h"
#include "server/api.h"
#include "server/page/engine_view.h"
#include "server/page/page.h"
#include "server/served_model.h"

namespace millrace {

void answer_page(const std::shared_ptr<Call>& call, ApiContext&) {
  const PageAsset* asset = find_page_asset(call->request().path);
  if (asset == nullptr) return call->fail({404, "the page has no such file", "", "not_found"});
  HttpReply reply{.body = std::string(asset->body), .content_type = std::string(asset->content_type)};
  reply.headers = {{"Content-Security-Policy", std::string(kPagePolicy)},
                   {"ETag", std::string(asset->etag)},
                   {"Cache-Control", "no-cache"},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"}};
  if (call->request().header("if-none-match") == asset->etag) {
    reply.status = 304;
    reply.body.clear();
  }
  call->reply(std::move(reply));
}

void answer_engine(const std::shared_ptr<Call>& call, ApiContext& context) {
  context.model.require_ready();
  call->reply(engine_view(context.model.service().stats()));
}

void answer_dataflow(const std::shared_ptr<Call>& call, ApiContext& context) {
  context.model.require_ready();
  call->reply(context.model.dataflow());
}

Schema engine_answer_schema() {
  const auto count = [] { return Schema::integer(0); };
  Schema kv = Schema::object({{"blocks", count(), true}, {"used", count(), true}, {"cached", count(), true}});
  return Schema::object({{"running", count(), true}, {"waiting", count(), true}, {"kv", std::move(kv), true}},
                        Schema::Others::Allowed);
}

Schema dataflow_answer_schema() {
  Schema choice =
      Schema::object({{"op", Schema::string(), true}, {"kernel", Schema::string(), true}}, Schema::Others::Allowed);
  return Schema::object({{"choices", Schema::array(std::move(choice)), true}});
}

}  // namespace millrace
