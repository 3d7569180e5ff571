// {"name": ..., "parameters": {...}} as the whole answer or behind <|python_tag|>; ';' separates several calls. Calls
// have no tags, so an object is a call only if its name is that of a tool.
#include "base/tag_scan.h"
#include "text/answer/call_stage.h"

namespace millrace {
namespace {

class Llama3Stage : public CallStage {
 public:
  explicit Llama3Stage(std::vector<std::string> names) : names_(std::move(names)) {}

  void take(char byte, Pieces& out) override {
    switch (state_) {
      case State::Start:
        if (is_ascii_space(byte)) return content(byte, out);
        if (byte == '{') return begin(byte, out);
        state_ = State::Text;
        return take_text(byte, out);
      case State::Text:
        return take_text(byte, out);
      case State::Object: {
        const CallObject::Step step = take_object(byte, out, &names_);
        if (step == CallObject::Step::End) state_ = State::Between;
        if (step == CallObject::Step::Broken) state_ = State::Text;
        return;
      }
      case State::Between:
        if (is_ascii_space(byte) || byte == ';' || byte == ',') return;
        if (byte == '{') return begin(byte, out);
        state_ = State::Text;
        return take_text(byte, out);
    }
  }

  void finish(Pieces& out) override {
    if (state_ == State::Text) content(tag_.drop(), out);
    if (state_ == State::Object) give_up(out);
    end_content(out);
  }

 private:
  enum class State : uint8_t { Start, Text, Object, Between };

  void begin(char byte, Pieces& out) {
    open_object("");
    state_ = State::Object;
    take_object(byte, out, &names_);
  }

  void take_text(char byte, Pieces& out) {
    const TagScan::Step step = tag_.take(byte);
    content(tag_.released(), out);
    if (step == TagScan::Step::Outside) content(byte, out);
    if (step == TagScan::Step::Found) state_ = State::Start;
  }

  std::vector<std::string> names_;
  State state_ = State::Start;
  TagScan tag_{"<|python_tag|>"};
};

}  // namespace

std::unique_ptr<CallStage> make_llama3_stage(std::vector<std::string> names) {
  return std::make_unique<Llama3Stage>(std::move(names));
}

}  // namespace millrace
