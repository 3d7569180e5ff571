#include "cli/draft_options.h"

#include "base/error.h"

namespace millrace {
namespace {

std::string chosen_draft(const DraftOptions& o) {
  if (o.speculate.empty() || o.speculate == "auto") return o.draft;
  if (o.speculate == "off") return "none";
  const std::string draft = o.speculate == "ngram" ? "lookup" : o.speculate;
  if (o.draft != "auto" && o.draft != draft)
    fail(ErrorKind::Usage, "--speculate {} and --draft {} name different sources of drafts", o.speculate, o.draft);
  return draft;
}

}  // namespace

void add_draft_options(CLI::App& verb, DraftOptions& o) {
  verb.add_option(
          "--draft", o.draft,
          "guess tokens ahead, so that a step can give several of them; the text stays the same. lookup: where "
          "prompt or answer repeat themselves, as far as it saves time; mtp: by the model's own heads; auto: mtp "
          "if the model has them, else lookup; none: one token a step; or a smaller MODEL of the same "
          "vocabulary, or an EAGLE-3 folder for this model")
      ->capture_default_str();
  verb.add_option("--speculate", o.speculate, "auto, off (--draft none), ngram (--draft lookup) or mtp")
      ->check(CLI::IsMember({"auto", "off", "ngram", "mtp"}));
}

DraftSource open_drafts(const DraftOptions& o, const ModelOptions& model,
                        const std::shared_ptr<const WeightSource>& main, LoadOptions& load) {
  const auto open = [&](const std::string& name) {
    ModelOptions draft = model;
    draft.model = name;
    return open_model(draft);
  };
  return open_drafts(chosen_draft(o), main, open, load);
}

std::unique_ptr<Drafter> make_drafter(const DraftSource& drafts, Runner& main, const TextModel& text) {
  return make_drafter(drafts, main, text, [](Runner& runner) { load_weights(runner); });
}

}  // namespace millrace
