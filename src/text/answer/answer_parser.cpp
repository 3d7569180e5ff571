#include "text/answer/answer_parser.h"

#include <utility>

#include "text/answer/reasoning_stage.h"

namespace millrace {
namespace {

std::unique_ptr<CallStage> make_call_stage(AnswerParserOptions& options) {
  if (options.format.harmony()) return make_harmony_stage(options.tools);
  if (!options.tools) return make_plain_stage();
  switch (options.format.tools) {
    case ToolFormat::Llama3:
      return make_llama3_stage(std::move(options.names));
    case ToolFormat::Mistral:
      return make_mistral_stage(options.after_marker);
    case ToolFormat::Harmony:
    case ToolFormat::Hermes:
      break;
  }
  return make_hermes_stage();
}

}  // namespace

struct AnswerParser::Stages {
  ReasoningStage reasoning;
  std::unique_ptr<CallStage> calls;
  Pieces out;
};

AnswerParser::AnswerParser(AnswerParserOptions options)
    : stages_(std::make_unique<Stages>(
          Stages{{options.format.reasons && !options.format.harmony() && !options.after_marker, options.in_reasoning},
                 make_call_stage(options),
                 {}})) {
  push(options.opened);
}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

std::vector<AnswerPiece> AnswerParser::push(std::string_view piece) {
  for (const char byte : piece) stages_->reasoning.take(byte, *stages_->calls, stages_->out);
  return stages_->out.take();
}

std::vector<AnswerPiece> AnswerParser::finish() {
  stages_->reasoning.finish(*stages_->calls, stages_->out);
  stages_->calls->finish(stages_->out);
  return stages_->out.take();
}

bool AnswerParser::in_reasoning() const { return stages_->reasoning.in_reasoning() || stages_->calls->in_reasoning(); }
int AnswerParser::calls() const { return stages_->calls->calls(); }

std::vector<std::string> answer_markers(const AnswerFormat& format, bool tools) {
  if (format.harmony())
    return {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"};
  std::vector<std::string> markers;
  if (format.reasons) markers = {"<think>", "</think>"};
  if (!tools) return markers;
  switch (format.tools) {
    case ToolFormat::Llama3:
      markers.emplace_back("<|python_tag|>");
      break;
    case ToolFormat::Mistral:
      for (const char* marker : {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}) markers.emplace_back(marker);
      break;
    case ToolFormat::Harmony:
      break;
    case ToolFormat::Hermes:
      for (const char* marker : {"<tool_call>", "</tool_call>"}) markers.emplace_back(marker);
      break;
  }
  return markers;
}

}  // namespace millrace
