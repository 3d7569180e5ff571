#include "text/answer/call_stage.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

class PlainStage : public CallStage {
 public:
  void take(char byte, Pieces& out) override { out.add(AnswerPiece::Kind::Content, {&byte, 1}); }
  void finish(Pieces&) override {}
};

}  // namespace

void CallStage::content(char byte, Pieces& out) {
  space_ += byte;
  if (!is_ascii_space(byte)) out.add(AnswerPiece::Kind::Content, std::exchange(space_, {}));
}

void CallStage::end_content(Pieces& out) {
  if (calls_ == 0) out.add(AnswerPiece::Kind::Content, space_);
  space_.clear();
}

void CallStage::begin_call(std::string_view name, Pieces& out) {
  space_.clear();
  out.add(AnswerPiece::Kind::Call, name, calls_++);
}

void CallStage::open_object(std::string_view raw) {
  object_ = {};
  raw_ = raw;
  announced_ = false;
}

CallObject::Step CallStage::take_object(char byte, Pieces& out, const std::vector<std::string>* names) {
  if (!announced_) raw_ += byte;
  CallObject::Step step = object_.take(byte);
  if (step != CallObject::Step::Broken && !announced_ && !object_.name().empty()) {
    if (names && std::find(names->begin(), names->end(), object_.name()) == names->end()) {
      step = CallObject::Step::Broken;
    } else {
      begin_call(object_.name(), out);
      announced_ = true;
      raw_.clear();
    }
  }
  if (announced_) arguments(object_.take_arguments(), out);
  if (step == CallObject::Step::Broken) give_up(out);
  return step;
}

void CallStage::give_up(Pieces& out) { content(std::exchange(raw_, {}), out); }

std::unique_ptr<CallStage> make_plain_stage() { return std::make_unique<PlainStage>(); }

}  // namespace millrace
