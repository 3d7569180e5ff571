// Any number of <tool_call>{"name": ..., "arguments": {...}}</tool_call>, with text in front and between.
#include "base/tag_scan.h"
#include "text/answer/call_stage.h"

namespace millrace {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";

class HermesStage : public CallStage {
 public:
  void take(char byte, Pieces& out) override {
    switch (state_) {
      case State::Text:
        return take_text(byte, out);
      case State::Object: {
        const CallObject::Step step = take_object(byte, out);
        if (step == CallObject::Step::End) state_ = State::Close;
        if (step == CallObject::Step::Broken) state_ = announced() ? State::Skip : State::Text;
        return;
      }
      case State::Close:
        return take_close(byte, out);
      case State::Skip:
        if (close_.take(byte) == TagScan::Step::Found) state_ = State::Text;
        return;
    }
  }

  void finish(Pieces& out) override {
    if (state_ == State::Text) content(open_.drop(), out);
    if (state_ == State::Object) give_up(out);
    end_content(out);
  }

 private:
  enum class State : uint8_t {
    Text,
    Object,
    Close,  // expects the closing tag
    Skip,   // an announced call broke off: skip to the closing tag
  };

  void take_text(char byte, Pieces& out) {
    const TagScan::Step step = open_.take(byte);
    content(open_.released(), out);
    if (step == TagScan::Step::Outside) content(byte, out);
    if (step != TagScan::Step::Found) return;
    open_object(kOpen);
    state_ = State::Object;
  }

  void take_close(char byte, Pieces& out) {
    const TagScan::Step step = close_.take(byte);
    if (step == TagScan::Step::Partial && close_.released().empty()) return;
    const std::string_view released = close_.released();
    if (step == TagScan::Step::Outside && released.empty() && is_ascii_space(byte)) return;
    state_ = State::Text;
    if (step == TagScan::Step::Found) return;
    // The model omitted the closing tag.
    const std::string_view begun = step == TagScan::Step::Partial ? close_.drop() : std::string_view(&byte, 1);
    for (const char earlier : released) take_text(earlier, out);
    for (const char now : begun) take_text(now, out);
  }

  State state_ = State::Text;
  TagScan open_{kOpen}, close_{kClose};
};

}  // namespace

std::unique_ptr<CallStage> make_hermes_stage() { return std::make_unique<HermesStage>(); }

}  // namespace millrace
