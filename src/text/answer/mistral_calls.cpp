// [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], and the format of newer tokenizers, once per call:
// [TOOL_CALLS]name[ARGS]{...}, optionally with [CALL_ID]id in front of [ARGS].
#include "base/tag_scan.h"
#include "text/answer/call_stage.h"

namespace millrace {
namespace {

constexpr std::string_view kMarker = "[TOOL_CALLS]";

class MistralStage : public CallStage {
 public:
  explicit MistralStage(bool after_marker) : state_(after_marker ? State::Marked : State::Text) {}

  void take(char byte, Pieces& out) override {
    switch (state_) {
      case State::Text:
        return take_text(byte, out);
      case State::Marked:
        if (is_ascii_space(byte)) return;
        state_ = byte == '[' ? State::List : State::Name;
        name_.clear();
        return state_ == State::Name ? take_name(byte, out) : void();
      case State::List:
        return take_list(byte, out);
      case State::Object: {
        const CallObject::Step step = take_object(byte, out);
        if (step == CallObject::Step::End) state_ = State::List;
        if (step == CallObject::Step::Broken) state_ = State::Text;
        return;
      }
      case State::Name:
        return take_name(byte, out);
      case State::Value:
        arguments({&byte, 1}, out);
        if (extent_.take(byte) == JsonExtent::Step::End) state_ = State::Text;
        return;
    }
  }

  void finish(Pieces& out) override {
    if (state_ == State::Text) content(tag_.drop(), out);
    if (state_ == State::Object) give_up(out);
    if (state_ == State::Name) content(name_, out);
    end_content(out);
  }

 private:
  enum class State : uint8_t { Text, Marked, List, Object, Name, Value };

  void take_text(char byte, Pieces& out) {
    const TagScan::Step step = tag_.take(byte);
    content(tag_.released(), out);
    if (step == TagScan::Step::Outside) content(byte, out);
    if (step == TagScan::Step::Found) state_ = State::Marked;
  }

  void take_list(char byte, Pieces& out) {
    if (is_ascii_space(byte) || byte == ',') return;
    state_ = State::Text;
    if (byte == ']') return;
    if (byte != '{') return take_text(byte, out);
    open_object("");
    state_ = State::Object;
    take_object(byte, out);
  }

  void take_name(char byte, Pieces& out) {
    if (byte != '{') {
      name_ += byte;
      return;
    }
    const std::string_view name = ascii_trim(std::string_view(name_).substr(0, name_.find('[')));
    if (name.empty()) {
      state_ = State::Text;
      content(name_, out);
      return content(byte, out);
    }
    begin_call(name, out);
    arguments({&byte, 1}, out);
    extent_ = {};
    extent_.take(byte);
    state_ = State::Value;
  }

  State state_;
  TagScan tag_{kMarker};
  std::string name_;
  JsonExtent extent_;
};

}  // namespace

std::unique_ptr<CallStage> make_mistral_stage(bool after_marker) {
  return std::make_unique<MistralStage>(after_marker);
}

}  // namespace millrace
