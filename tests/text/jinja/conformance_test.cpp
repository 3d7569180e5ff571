// Compares rendered templates with Python's Jinja2 in Hugging Face's configuration: the same text, or an error in both.
// scripts/make_template_vectors.py and scripts/random_templates.py write the cases.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "base/error.h"
#include "text/chat_template.h"

namespace millrace {
namespace {

using nlohmann::ordered_json;

const std::string kFolder = std::string(MILLRACE_TEST_DATA) + "/templates/";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The vectors use UTC.
class Conformance : public testing::Test {
 protected:
  Conformance() {
    setenv("TZ", "UTC", 1);
    tzset();
  }

  void check(const std::string& source, const ordered_json& context, int64_t now, const ordered_json& expected) {
    ordered_json actual;
    std::string message;
    try {
      actual["text"] =
          ChatTemplate(source).render(context, std::chrono::system_clock::time_point(std::chrono::seconds(now)));
    } catch (const Error& error) {
      actual["error"] = error.kind() == ErrorKind::Unsupported ? "raised" : "template";
      message = error.what();
    }
    if (expected.contains("text")) {
      EXPECT_EQ(actual.value("text", "(failed)"), expected["text"].get<std::string>()) << source << "\n" << message;
    } else {
      EXPECT_EQ(actual.value("error", "(rendered)"), expected["error"].get<std::string>()) << source << "\n" << message;
    }
    ++checked_;
  }

  int checked_ = 0;
};

TEST_F(Conformance, FamiliesOfModels) {
  const ordered_json vectors = ordered_json::parse(read_file(kFolder + "families.json"));
  for (const auto& expected : vectors["cases"]) {
    const std::string name = expected["template"], context = expected["context"];
    SCOPED_TRACE(name + " over " + context);
    check(read_file(kFolder + "families/" + name + ".jinja"), vectors["contexts"][context], vectors["now"], expected);
  }
  EXPECT_GT(checked_, 300);
}

TEST_F(Conformance, Snippets) {
  const ordered_json vectors = ordered_json::parse(read_file(kFolder + "snippets.json"));
  for (const auto& expected : vectors["cases"])
    check(expected["template"], vectors["context"], vectors["now"], expected);
  EXPECT_GT(checked_, 300);
}

TEST_F(Conformance, RandomTemplates) {
  const ordered_json vectors = ordered_json::parse(read_file(kFolder + "random_cases.json"));
  for (const auto& expected : vectors["cases"])
    check(expected["template"], vectors["context"], vectors["now"], expected);
  EXPECT_GT(checked_, 300);
}

}  // namespace
}  // namespace millrace
