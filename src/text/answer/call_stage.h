// The stage of the answer parser that detects tool calls behind the reasoning. One class per format.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/call_object.h"
#include "text/answer/pieces.h"

namespace millrace {

class CallStage {
 public:
  virtual ~CallStage() = default;
  virtual void take(char byte, Pieces& out) = 0;
  virtual void finish(Pieces& out) = 0;
  virtual bool in_reasoning() const { return false; }
  int calls() const { return calls_; }

 protected:
  // Drops white space around calls, so it is held back until the next byte is known.
  void content(char byte, Pieces& out);
  void content(std::string_view text, Pieces& out) {
    for (const char byte : text) content(byte, out);
  }
  void end_content(Pieces& out);  // end of the answer

  void begin_call(std::string_view name, Pieces& out);
  void arguments(std::string_view text, Pieces& out) { out.add(AnswerPiece::Kind::Arguments, text, calls_ - 1); }

  // Parses the object of a call and announces the call as soon as its name is known. If the object is broken, its raw
  // text becomes content unless the call was announced.
  void open_object(std::string_view raw);
  CallObject::Step take_object(char byte, Pieces& out, const std::vector<std::string>* names = nullptr);
  bool announced() const { return announced_; }
  void give_up(Pieces& out);  // the object stays incomplete

 private:
  int calls_ = 0;
  std::string space_;  // held-back white space
  CallObject object_;
  std::string raw_;  // text of the object until it is announced
  bool announced_ = false;
};

std::unique_ptr<CallStage> make_plain_stage();
std::unique_ptr<CallStage> make_hermes_stage();
std::unique_ptr<CallStage> make_llama3_stage(std::vector<std::string> names);
std::unique_ptr<CallStage> make_mistral_stage(bool after_marker);
std::unique_ptr<CallStage> make_harmony_stage(bool tools);

}  // namespace millrace
