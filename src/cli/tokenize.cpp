// millrace tokenize and detokenize: text to ids and pieces, and back.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/read_text.h"
#include "cli/token_list.h"
#include "engine/text_model.h"

namespace millrace {
namespace {

struct TokenizeOptions {
  ModelOptions model;
  std::string text, file, tokens;
  bool has_text = false, no_bos = false, no_special = false, keep_special = false;
};

void tokenize(const TokenizeOptions& o) {
  if (o.has_text && !o.file.empty()) fail(ErrorKind::Usage, "give TEXT or --file, not both");
  const auto tokenizer = load_tokenizer(*open_model(o.model));
  const std::string text = o.has_text ? o.text : read_file_or_stdin(o.file.empty() ? "-" : o.file);
  const auto ids = tokenizer->encode(text, {.add_special = !o.no_bos, .parse_special = !o.no_special});
  std::vector<std::string> pieces;
  for (const int32_t id : ids) pieces.emplace_back(tokenizer->token_bytes(id));
  if (o.model.json) {
    print_json({{"ids", ids}, {"pieces", pieces}});
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) fmt::print("{:>7} {}\n", ids[i], json_text(nlohmann::json(pieces[i])));
}

void detokenize(const TokenizeOptions& o) {
  const auto tokenizer = load_tokenizer(*open_model(o.model));
  const std::string text = tokenizer->decode(parse_token_list(o.tokens, tokenizer->vocab_size()), !o.keep_special);
  if (o.model.json) {
    print_json({{"text", text}});
  } else {
    fmt::print("{}\n", text);
  }
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto* verb = app.add_subcommand("tokenize", "Show the ids and pieces of a text");
  auto o = std::make_shared<TokenizeOptions>();
  add_file_options(*verb, o->model);
  auto* text = verb->add_option("TEXT", o->text, "the text; without it, --file or stdin");
  verb->add_option("-f,--file", o->file, "read the text from a file, with any bytes; - for stdin");
  verb->add_flag("--no-bos", o->no_bos, "add no beginning- or end-of-text token");
  verb->add_flag("--no-special", o->no_special, "special tokens in the text are plain text");
  verb->callback([o, text] {
    o->has_text = text->count() > 0;
    tokenize(*o);
  });
}

void add_detokenize(CLI::App& app) {
  auto* verb = app.add_subcommand("detokenize", "Show the text of token ids");
  auto o = std::make_shared<TokenizeOptions>();
  add_file_options(*verb, o->model);
  verb->add_option("--tokens", o->tokens, "token ids: 1,2,3")->required();
  verb->add_flag("--special", o->keep_special, "show special tokens too");
  verb->callback([o] { detokenize(*o); });
}

}  // namespace millrace
