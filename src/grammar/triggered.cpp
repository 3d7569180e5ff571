#include "grammar/triggered.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/tag_scan.h"

namespace millrace {
namespace {

// Scans an answer for the trigger.
class TriggerScan {
 public:
  explicit TriggerScan(const GrammarTrigger& trigger)
      : bound_to_start_(trigger.at_start),
        restarts_(!trigger.restart.empty()),
        at_start_(trigger.at_start),
        text_(trigger.text),
        restart_(trigger.restart) {}

  // True: the trigger is complete with this byte.
  bool take(char byte) {
    const bool was_at_start = at_start_ || !bound_to_start_;
    if (restarts_ && restart_.take(byte) == TagScan::Step::Found) {
      at_start_ = true;
      return false;
    }
    if (!was_at_start) return false;
    const TagScan::Step step = text_.take(byte);
    if (step == TagScan::Step::Outside && !(is_ascii_space(byte) && text_.released().empty())) at_start_ = false;
    return step == TagScan::Step::Found;
  }

  bool idle() const { return !at_start_ && text_.empty() && restart_.empty(); }
  void leave_start() { at_start_ = false; }

 private:
  bool bound_to_start_, restarts_, at_start_;
  TagScan text_, restart_;
};

class TriggeredConstraint : public Constraint {
 public:
  TriggeredConstraint(GrammarTrigger trigger, std::shared_ptr<const TokenVocabulary> vocabulary,
                      std::unique_ptr<TextConstraint> grammar)
      : trigger_(std::move(trigger)),
        vocabulary_(std::move(vocabulary)),
        grammar_(std::move(grammar)),
        scan_(trigger_),
        marked_scan_(scan_) {
    if (trigger_.in_grammar) grammar_->accept_text(trigger_.text);
    TriggerScan idle(trigger_);
    idle.leave_start();
    for (int32_t token = 0; token < static_cast<int32_t>(vocabulary_->size()); ++token) {
      const std::string& bytes = vocabulary_->bytes(token);
      const size_t end = bytes.find(trigger_.text.back());
      if (end == std::string::npos || end + 1 == bytes.size()) continue;
      crossing_.push_back(token);
      if (rest_after_trigger(idle, bytes).data() != nullptr) whole_.push_back(token);
    }
  }

  bool fill_mask(std::span<uint32_t> words) override {
    if (holds_) return grammar_->fill_mask(words);
    bool any = false;
    for (const int32_t token : scan_.idle() ? whole_ : crossing_) {
      const std::string_view rest = rest_after_trigger(scan_, vocabulary_->bytes(token));
      if (rest.empty() || grammar_->allows(rest)) continue;
      if (!any) std::fill(words.begin(), words.end(), ~uint32_t{0});
      any = true;
      words[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
    }
    return any;
  }

  void accept(int32_t token) override {
    if (holds_) return grammar_->accept(token);
    const std::string_view text = text_of(token);
    for (size_t i = 0; i < text.size() && !holds_; ++i) {
      holds_ = scan_.take(text[i]);
      if (holds_) grammar_->accept_text(text.substr(i + 1));
    }
  }

  void mark() override {
    marked_scan_ = scan_;
    marked_holds_ = holds_;
    grammar_->mark();
  }

  void roll_back() override {
    scan_ = marked_scan_;
    holds_ = marked_holds_;
    grammar_->roll_back();
  }

  bool terminated() const override { return holds_ && grammar_->terminated(); }
  bool failed() const override { return holds_ && grammar_->failed(); }

 private:
  // The text of a token behind the trigger that it completes; null data: it completes none.
  static std::string_view rest_after_trigger(TriggerScan scan, std::string_view bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (scan.take(bytes[i])) return bytes.substr(i + 1);
    }
    return {};
  }

  std::string_view text_of(int32_t token) const {
    const auto is_it = [&](const auto& marker) { return marker.first == token; };
    const auto marker = std::find_if(trigger_.markers.begin(), trigger_.markers.end(), is_it);
    return marker != trigger_.markers.end() ? std::string_view(marker->second) : vocabulary_->bytes(token);
  }

  const GrammarTrigger trigger_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  std::unique_ptr<TextConstraint> grammar_;
  TriggerScan scan_, marked_scan_;
  bool holds_ = false, marked_holds_ = false;
  // Tokens that may complete the trigger and continue, so that the grammar must allow their rest: in any state of the
  // scan, and in its start state. A vocabulary has hardly any of the latter.
  std::vector<int32_t> crossing_, whole_;
};

}  // namespace

std::unique_ptr<Constraint> make_triggered_constraint(GrammarTrigger trigger,
                                                      std::shared_ptr<const TokenVocabulary> vocabulary,
                                                      std::unique_ptr<TextConstraint> grammar) {
  return std::make_unique<TriggeredConstraint>(std::move(trigger), std::move(vocabulary), std::move(grammar));
}

}  // namespace millrace
