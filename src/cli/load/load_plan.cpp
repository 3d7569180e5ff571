#include "cli/load/load_plan.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json_text.h"
#include "base/random.h"

namespace millrace {
namespace {

constexpr std::array<std::string_view, 96> kWords = {
    "the",   "river",  "water",  "wheel",  "stone",  "turns",    "when",   "grain",  "field", "under",   "light",
    "small", "house",  "people", "often",  "across", "work",     "place",  "little", "sound", "great",   "mill",
    "old",   "found",  "still",  "know",   "time",   "year",     "good",   "day",    "hand",  "high",    "part",
    "world", "life",   "long",   "made",   "home",   "story",    "large",  "paper",  "group", "music",   "often",
    "until", "mile",   "car",    "feet",   "care",   "second",   "book",   "carry",  "took",  "science", "eat",
    "room",  "friend", "began",  "idea",   "fish",   "mountain", "north",  "once",   "base",  "hear",    "horse",
    "cut",   "sure",   "watch",  "color",  "face",   "wood",     "main",   "enough", "plain", "girl",    "usual",
    "young", "ready",  "above",  "ever",   "red",    "list",     "though", "feel",   "talk",  "bird",    "soon",
    "body",  "dog",    "family", "direct", "pose",   "leave",    "song",   "measure"};

constexpr uint64_t kPrefixStream = 1, kPromptStream = 2;

std::string words(const LoadPlan& plan, int count, uint64_t which, uint64_t stream) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text +=
        kWords[philox(plan.seed ^ which * 0x9E3779B97F4A7C15u, static_cast<uint64_t>(i), stream)[0] % kWords.size()];
  }
  return text;
}

}  // namespace

double Arrivals::next() {
  if (rate_ > 0) at_ -= std::log1p(-random_unit(seed_, drawn_++)) / rate_;
  return at_;
}

std::string load_prompt(const LoadPlan& plan, uint64_t i) {
  std::string text = words(plan, plan.prefix_words, 0, kPrefixStream);
  if (!text.empty() && plan.words > 0) text += ' ';
  return text + words(plan, plan.words, i + 1, kPromptStream);
}

std::string load_request(const LoadPlan& plan, uint64_t i) {
  nlohmann::json body = {{"messages", {{{"role", "user"}, {"content", load_prompt(plan, i)}}}},
                         {"max_tokens", plan.tokens},
                         {"stream", true},
                         {"stream_options", {{"include_usage", true}}}};
  if (!plan.model.empty()) body["model"] = plan.model;
  if (plan.exact) body["ignore_eos"] = true;
  return json_text(body);
}

}  // namespace millrace
