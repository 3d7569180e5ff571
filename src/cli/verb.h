// Each verb is one file: it adds a subcommand with its options and its callback.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace {

using AddVerb = void(CLI::App& app);

AddVerb add_run, add_chat, add_bench, add_explain, add_inspect, add_logits, add_tokenize, add_detokenize, add_template,
    add_perplexity, add_embed, add_imatrix, add_convert, add_quantize, add_models, add_doctor, add_load, add_serve, add_tune, add_calibrate,
    add_pull, add_rm, add_ps;

}  // namespace millrace
