#include "grammar/channels.h"

#include <algorithm>
#include <utility>

#include "text/answer/harmony_header.h"

namespace millrace {
namespace {

using Tokens = std::vector<int32_t>;

Tokens joined(std::initializer_list<const Tokens*> parts) {
  Tokens all;
  for (const Tokens* part : parts) all.insert(all.end(), part->begin(), part->end());
  return all;
}

class ChannelConstraint : public Constraint {
 public:
  ChannelConstraint(ChannelRules rules, std::vector<ChannelRoute> routes)
      : rules_(std::move(rules)), routes_(std::move(routes)) {
    const Tokens start{rules_.start}, end{rules_.end};
    turn_ = joined({&start, &rules_.assistant});
    cut_ = joined({&end, &turn_});
    if (!rules_.strict && !routes_.empty()) cut_ = joined({&cut_, &routes_[0].header});
    now_.header.reserve(kUsualHeader);
    marked_.header.reserve(kUsualHeader);
    for (const int32_t token : rules_.opened) accept(token);
  }

  bool fill_mask(std::span<uint32_t> words) override {
    switch (now_.state) {
      case State::Header:
        return rules_.strict && fill_header(words);
      case State::Analysis:
        if (!rules_.strict) return false;
        std::fill(words.begin(), words.end(), ~uint32_t{0});
        for (const int32_t token : rules_.forbidden) clear(token, words);
        return true;
      case State::Turn:
      case State::Cut:
        std::fill(words.begin(), words.end(), 0u);
        set(forced()[now_.forced], words);
        return true;
      case State::Route:
        return body() != nullptr && body()->fill_mask(words);
      case State::Free:
        return false;
    }
    return false;
  }

  void accept(int32_t token) override {
    switch (now_.state) {
      case State::Header:
        now_.header.push_back(token);
        return rules_.strict ? follow_header() : token == rules_.message ? read_header() : void();
      case State::Analysis:
        ++now_.spent;
        if (token == rules_.end && rules_.strict) return force(State::Turn);
        if (!leaves_body(token) && used_up()) force(State::Cut);
        return;
      case State::Turn:
      case State::Cut:
        if (++now_.forced == forced().size()) end_forced();
        return;
      case State::Route:
        if (body() != nullptr) return body()->accept(token);
        leaves_body(token);
        return;
      case State::Free:
        leaves_body(token);
        return;
    }
  }

  void mark() override {
    marked_ = now_;
    for (ChannelRoute& route : routes_) {
      if (route.body) route.body->mark();
    }
  }

  void roll_back() override {
    now_ = marked_;
    for (ChannelRoute& route : routes_) {
      if (route.body) route.body->roll_back();
    }
  }

  bool terminated() const override { return body() != nullptr && body()->terminated(); }
  bool failed() const override { return body() != nullptr && body()->failed(); }

 private:
  static constexpr size_t kUsualHeader = 32;  // tokens

  enum class State : uint8_t {
    Header,    // between <|start|>assistant and <|message|>
    Analysis,  // in the body of an analysis
    Turn,      // behind an analysis: <|start|>assistant is forced
    Cut,       // the budget is used up: the end of the analysis is forced, and the beginning of the next message
    Route,     // in the body of a route
    Free,      // in the body of another message
  };

  const Tokens& forced() const { return now_.state == State::Turn ? turn_ : cut_; }
  Constraint* body() const { return now_.state == State::Route ? routes_[now_.route].body.get() : nullptr; }
  bool may_analyse() const { return !rules_.analysis.empty() && !now_.analysed; }
  bool used_up() const { return rules_.budget >= 0 && now_.spent >= rules_.budget; }

  void force(State state) {
    now_.state = state;
    now_.forced = 0;
  }

  void begin_header() {
    now_.state = State::Header;
    now_.header.clear();
  }

  void end_forced() {
    const bool strict = rules_.strict;
    begin_header();
    if (!strict && !routes_.empty()) begin_route(0);
  }

  void begin_route(size_t route) {
    now_.state = State::Route;
    now_.route = route;
  }

  void begin_analysis() {
    now_.analysed = true;
    now_.state = State::Analysis;
    if (used_up()) force(State::Cut);
  }

  // A free body ends with a tag of the next header or with the end of its message.
  bool leaves_body(int32_t token) {
    if (token != rules_.end && token != rules_.start && token != rules_.channel) return false;
    begin_header();
    now_.header.push_back(token);
    return true;
  }

  bool extends_header(const Tokens& header) const {
    return now_.header.size() < header.size() && std::equal(now_.header.begin(), now_.header.end(), header.begin());
  }

  // The next tokens of all headers that begin with the tokens so far.
  bool fill_header(std::span<uint32_t> words) const {
    std::fill(words.begin(), words.end(), 0u);
    const size_t at = now_.header.size();
    if (may_analyse() && extends_header(rules_.analysis)) set(rules_.analysis[at], words);
    for (const ChannelRoute& route : routes_) {
      if (extends_header(route.header)) set(route.header[at], words);
    }
    return true;
  }

  void follow_header() {
    if (may_analyse() && now_.header == rules_.analysis) return begin_analysis();
    for (size_t i = 0; i < routes_.size(); ++i) {
      if (now_.header == routes_[i].header) return begin_route(i);
    }
  }

  void read_header() {
    std::string text;
    for (const int32_t token : now_.header) text += rules_.text_of(token);
    const HarmonyHeader about = read_harmony_header(text);
    if (about.recipient.empty() && about.channel == "analysis") return begin_analysis();
    now_.state = State::Free;
    const bool is_final = about.recipient.empty() && about.channel == "final";
    for (size_t i = 0; i < routes_.size(); ++i) {
      const bool chosen = routes_[i].function.empty() ? is_final : routes_[i].function == about.function();
      if (chosen) return begin_route(i);
    }
  }

  static void set(int32_t token, std::span<uint32_t> words) {
    words[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }
  static void clear(int32_t token, std::span<uint32_t> words) {
    words[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
  }

  struct Now {
    State state = State::Header;
    Tokens header;
    size_t route = 0, forced = 0;
    int32_t spent = 0;
    bool analysed = false;
  };

  const ChannelRules rules_;
  std::vector<ChannelRoute> routes_;
  Tokens turn_, cut_;
  Now now_, marked_;
};

}  // namespace

std::unique_ptr<Constraint> make_channel_constraint(ChannelRules rules, std::vector<ChannelRoute> routes) {
  return std::make_unique<ChannelConstraint>(std::move(rules), std::move(routes));
}

}  // namespace millrace
