// Renders chat templates for the scripts that compare with Python. Reads one JSON object {template, context, now} per
// line and writes {text} or {error, kind}.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "text/chat_template.h"

int main() {
  using nlohmann::ordered_json;
  for (std::string line; std::getline(std::cin, line);) {
    ordered_json result;
    try {
      const ordered_json request = ordered_json::parse(line);
      const millrace::ChatTemplate chat_template(request.at("template").get<std::string>());
      const std::chrono::system_clock::time_point now{std::chrono::seconds(request.value("now", int64_t{0}))};
      result["text"] = chat_template.render(request.at("context"), now);
    } catch (const millrace::Error& error) {
      result["error"] = error.what();
      result["kind"] = error.kind() == millrace::ErrorKind::Unsupported ? "usage" : "bad_file";
    }
    std::cout << result.dump() << std::endl;
  }
}
