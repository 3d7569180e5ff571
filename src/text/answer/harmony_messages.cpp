// The harmony format of gpt-oss. An answer is a list of messages
//   <|start|>assistant HEADER <|message|> BODY <|end|>
// of which the prompt contains the first <|start|>assistant. The channel in the header tells what the body is: analysis
// is reasoning, final is the answer, commentary is text for the user. A message with a recipient is a tool call, and
// its body the arguments.
#include <array>
#include <utility>

#include "text/answer/call_stage.h"
#include "text/answer/harmony_header.h"

namespace millrace {
namespace {

enum class Mark : uint8_t { None, Start, Channel, Constrain, Message, End };

struct Tag {
  std::string_view text;
  Mark mark;
};
constexpr std::array kTags{Tag{"<|start|>", Mark::Start},     Tag{"<|channel|>", Mark::Channel},
                           Tag{"<|message|>", Mark::Message}, Tag{"<|constrain|>", Mark::Constrain},
                           Tag{"<|end|>", Mark::End},         Tag{"<|call|>", Mark::End},
                           Tag{"<|return|>", Mark::End}};

// Finds the tags in text that arrives byte by byte. The first byte of the tags does not recur inside of them.
class TagsScan {
 public:
  // Appends a byte to held(). Afterwards held() is the beginning of a tag, a whole tag (the result names it), or, if
  // broken(), plain text whose last byte may begin a tag.
  Mark take(char byte) {
    held_ += byte;
    for (const Tag& tag : kTags) {
      if (held_ == tag.text) return tag.mark;
    }
    return Mark::None;
  }
  bool broken() const {
    for (const Tag& tag : kTags) {
      if (tag.text.starts_with(held_)) return false;
    }
    return true;
  }
  std::string drop() { return std::exchange(held_, {}); }

 private:
  std::string held_;
};

class HarmonyStage : public CallStage {
 public:
  explicit HarmonyStage(bool tools) : tools_(tools) {}

  void take(char byte, Pieces& out) override {
    const Mark mark = scan_.take(byte);
    if (mark != Mark::None) return take_mark(mark, scan_.drop(), out);
    if (!scan_.broken()) return;
    std::string text = scan_.drop();
    const bool again = text.size() > 1 && byte == '<';  // it may begin the next tag
    if (again) text.pop_back();
    take_text(text, out);
    if (again) take(byte, out);
  }

  void finish(Pieces& out) override {
    if (state_ == State::Body || state_ == State::Start) take_text(scan_.drop(), out);
    if (state_ == State::Start) begin_text(out);
    end_body(out);
  }

  bool in_reasoning() const override { return state_ == State::Body && kind_ == AnswerPiece::Kind::Reasoning; }

 private:
  enum class State : uint8_t {
    Start,    // of the answer: a header, or text of a model that writes no headers
    Header,   // up to <|message|>
    Body,     // up to the end of the message
    Between,  // behind a message
  };

  void take_mark(Mark mark, std::string_view text, Pieces& out) {
    switch (mark) {
      case Mark::End:
        end_body(out);
        state_ = State::Between;
        return;
      case Mark::Message:
        if (state_ == State::Body) return take_text(text, out);
        begin_body(out);
        return;
      case Mark::Start:
      case Mark::Channel:
        if (state_ != State::Header) {
          if (state_ != State::Start) header_.clear();
          end_body(out);
          state_ = State::Header;
        }
        header_ += text;
        return;
      case Mark::Constrain:
        if (state_ == State::Body) return take_text(text, out);
        header_ += text;
        return;
      case Mark::None:
        return;
    }
  }

  void take_text(std::string_view text, Pieces& out) {
    for (const char byte : text) take_plain(byte, out);
  }

  void take_plain(char byte, Pieces& out) {
    switch (state_) {
      case State::Start:
        header_ += byte;
        // A header begins with a tag or with a recipient.
        if (!std::string_view(" to=").starts_with(std::string_view(header_).substr(0, 4))) begin_text(out);
        return;
      case State::Header:
        header_ += byte;
        return;
      case State::Between:
        if (is_ascii_space(byte)) return;
        header_.clear();
        state_ = State::Start;
        return take_plain(byte, out);
      case State::Body:
        if (!std::exchange(grown_, true)) separate(out);
        return out.add(kind_, {&byte, 1}, kind_ == AnswerPiece::Kind::Arguments ? calls() - 1 : -1);
    }
  }

  void begin_body(Pieces& out) {
    const std::string header = std::exchange(header_, {});
    const HarmonyHeader about = read_harmony_header(header);
    if (tools_ && !about.function().empty()) {
      begin_call(about.function(), out);
      return open(AnswerPiece::Kind::Arguments);
    }
    // Without tools there is nobody to call: a message with a recipient is not for the user.
    const bool thinks = about.channel == "analysis" || !about.recipient.empty();
    open(thinks ? AnswerPiece::Kind::Reasoning : AnswerPiece::Kind::Content);
  }

  // What looked like a header is the answer of a model that writes none.
  void begin_text(Pieces& out) {
    const std::string text = std::exchange(header_, {});
    open(AnswerPiece::Kind::Content);
    take_text(text, out);
  }

  void open(AnswerPiece::Kind kind) {
    state_ = State::Body;
    kind_ = kind;
    grown_ = false;
  }

  // A blank line between two messages of one kind.
  void separate(Pieces& out) {
    if (kind_ == AnswerPiece::Kind::Arguments) return;
    bool& before = kind_ == AnswerPiece::Kind::Content ? has_content_ : has_reasoning_;
    if (std::exchange(before, true)) out.add(kind_, "\n\n");
  }

  void end_body(Pieces& out) {
    if (state_ == State::Body && kind_ == AnswerPiece::Kind::Arguments && !grown_) arguments("{}", out);
    if (state_ == State::Body) state_ = State::Between;
  }

  const bool tools_;
  State state_ = State::Start;
  TagsScan scan_;
  std::string header_;
  AnswerPiece::Kind kind_ = AnswerPiece::Kind::Content;  // of the body
  bool grown_ = false;                                   // the body has text
  bool has_content_ = false, has_reasoning_ = false;
};

}  // namespace

std::unique_ptr<CallStage> make_harmony_stage(bool tools) { return std::make_unique<HarmonyStage>(tools); }

}  // namespace millrace
