#include "server/requests/json.h"

#include <vector>

#include "base/json_text.h"
#include "server/requests/api_error.h"

namespace millrace {
namespace {

// Counts names during parsing, so that hostile text is refused before it is built.
class Bounds {
 public:
  explicit Bounds(const JsonBounds& bounds) : bounds_(bounds) {}

  bool operator()(int depth, Json::parse_event_t event, Json&) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (depth >= bounds_.depth) fail_request("the JSON is nested more than {} deep", bounds_.depth);
        names_here_.resize(static_cast<size_t>(depth) + 1);
        names_here_.back() = 0;
        break;
      case Json::parse_event_t::key:
        if (++names_here_[static_cast<size_t>(depth) - 1] > bounds_.names_in_object) {
          fail_request("an object of the JSON has more than {} names", bounds_.names_in_object);
        }
        if (++names_ > bounds_.names) fail_request("the JSON has more than {} names", bounds_.names);
        break;
      default:
        break;
    }
    return true;
  }

 private:
  JsonBounds bounds_;
  std::vector<size_t> names_here_;  // by depth
  size_t names_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const JsonBounds& bounds) {
  if (text.empty()) fail_request("the body is empty: send JSON");
  try {
    return Json::parse(text, Bounds(bounds));
  } catch (const Json::parse_error& e) {
    fail_request("the body is not valid JSON at byte {}", e.byte);
  } catch (const Json::exception&) {
    fail_request("the body is not valid JSON: a number is out of range");
  }
}

std::string to_text(const Json& json) { return json_text(json); }

}  // namespace millrace
