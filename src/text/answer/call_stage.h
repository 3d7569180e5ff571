// The part of an answer's parser that looks for tool calls in what is not reasoning; one class for each format.
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
  int calls() const { return calls_; }

 protected:
  // Space around calls belongs to no one, so it is held back until it is clear what follows.
  void content(char byte, Pieces& out);
  void content(std::string_view text, Pieces& out) {
    for (const char byte : text) content(byte, out);
  }
  void end_content(Pieces& out);  // no more comes

  void begin_call(std::string_view name, Pieces& out);
  void arguments(std::string_view text, Pieces& out) { out.add(AnswerPiece::Kind::Arguments, text, calls_ - 1); }

  // Feeds a call's object; a call is announced as soon as its name is known. Broken: it is none, and `raw` comes out as
  // content unless it was announced already.
  void open_object(std::string_view raw);
  CallObject::Step take_object(char byte, Pieces& out, const std::vector<std::string>* names = nullptr);
  bool announced() const { return announced_; }
  void give_up(Pieces& out);  // the object will not be finished

 private:
  int calls_ = 0;
  std::string space_;  // held back
  CallObject object_;
  std::string raw_;  // of the object, as long as it is not announced
  bool announced_ = false;
};

std::unique_ptr<CallStage> make_plain_stage();
std::unique_ptr<CallStage> make_hermes_stage();
std::unique_ptr<CallStage> make_llama3_stage(std::vector<std::string> names);
std::unique_ptr<CallStage> make_mistral_stage(bool after_marker);

}  // namespace millrace
