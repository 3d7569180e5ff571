// One API call on the engine: submits its prompts and turns the emitted tokens into text, in order for each choice. A
// stop string ends a choice; a disconnected client ends the call.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/choice_text.h"
#include "engine/request.h"
#include "engine/service.h"
#include "sampling/sampler.h"
#include "server/call.h"
#include "server/requests/api_error.h"

namespace millrace {

class ServedModel;
class SessionTurn;
class TaskQueue;

struct Delta {  // the next part of one choice
  int choice = 0;
  std::string text;                     // may be empty: text held back, or a token without text
  std::vector<TokenLogprobs> logprobs;  // of the tokens since the last delta
  int tokens = 0;                       // number of these tokens
  FinishReason finish = FinishReason::None;
  std::string stop = {};  // with finish: the stop string that ended the choice
};

// Builds an answer from the generated text. Calls never overlap.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  virtual void on_begin() {}  // all prompts were accepted; nothing is generated yet
  virtual void on_prompt(int prompt, std::vector<TokenLogprobs>) {}  // only if requested
  virtual void on_embedding(int prompt, std::vector<float>) {}
  virtual void on_delta(const Delta& delta) = 0;  // the last delta of a choice has a finish reason
  virtual void on_pause() {}                      // nothing more for now: flush
  virtual void on_end() = 0;                      // after all choices
  // on_begin() is due even while an answer is held back (server/cascade.h): it says nothing about the model.
  virtual bool begins_at_once() const { return false; }
  // A choice whose tool the client runs now will come back in a session. nullopt: this sink's answers never do.
  virtual std::optional<bool> waits_for_tool(int) const { return std::nullopt; }
};

struct GenerationOptions {
  std::string prompt_field;  // name of the prompt field, for errors
  std::vector<std::string> stop;
  int min_tokens = 0;                // stop strings are ignored before
  std::vector<std::string> visible;  // special tokens to keep in the text
  std::shared_ptr<void> lease = {};  // for another model than the call's
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(std::shared_ptr<Call> call, ServedModel& model, TaskQueue& workers, Metrics& metrics,
             GenerationOptions options);
  ~Generation();

  // Submits one engine request per prompt; choice c of prompt p is choice p * choices + c of the sink. Throws if the
  // first cannot be submitted; later problems end the call.
  void start(std::vector<Request> requests, std::unique_ptr<GenerationSink> sink);

 private:
  using Clock = std::chrono::steady_clock;
  struct Arrival {  // an emission and a copy of the data it points to
    Emission emission;
    size_t prompt = 0;
    Clock::time_point at;
    bool has_logprobs = false;
    TokenLogprobs logprobs;
    std::vector<TokenLogprobs> prompt_logprobs;
    std::vector<float> embedding;
    std::string error;
  };
  struct Choice;

  void submit_next();
  void submit_some();
  void on_emission(size_t prompt, const Emission& emission);  // on the engine's thread
  ApiProblem problem_of(const Error& error) const;            // names the prompt
  void process();                                             // on one thread at a time
  void take(Arrival& arrival);
  void take_token(Choice& choice, int index, Arrival& arrival);
  void tell(Choice& choice, int index, std::string text, FinishReason finish);
  void end_choice(Choice& choice, int index, FinishReason finish, Arrival& arrival);
  void end_turn();
  void give_up(const ApiProblem& problem);
  void client_left();
  void cancel_all();

  std::shared_ptr<void> lease_;  // of the model; destroyed last. The call may go on with another model
  std::shared_ptr<Call> call_;
  ServedModel& model_;
  TaskQueue& workers_;
  Metrics& metrics_;
  GenerationOptions options_;
  std::vector<Request> requests_;
  int choices_ = 1;  // per prompt
  std::unique_ptr<GenerationSink> sink_;
  std::vector<Choice> all_;
  size_t submitted_ = 0, under_way_ = 0, open_choices_ = 0;
  bool over_ = false;
  std::unique_ptr<SessionTurn> turn_;  // null: no session

  std::mutex mutex_;  // guards the members below
  std::vector<Arrival> arrivals_;
  bool processing_ = true;  // until start() has called on_begin()
  bool left_ = false;
  std::vector<RequestId> ids_;  // by prompt; 0: not yet submitted
};

}  // namespace millrace
