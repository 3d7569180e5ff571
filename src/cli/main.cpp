// millrace: the command line. Errors are one line on stderr. Exit codes: 0 success, 1 failure, 2 misuse.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <new>
#include <span>
#include <system_error>

#include "base/build_id.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/tell.h"
#include "cli/checks.h"
#include "cli/flush_stdout.h"
#include "cli/foreign_flags.h"
#include "cli/help_format.h"
#include "cli/verb.h"

namespace millrace {
namespace {

constexpr std::array kVerbs{add_run,       add_chat,       add_serve,   add_load,    add_bench,    add_tune,
                            add_calibrate, add_explain,    add_inspect, add_logits,  add_tokenize, add_detokenize,
                            add_template,  add_perplexity, add_embed,   add_convert, add_imatrix,  add_quantize,
                            add_models,    add_pull,       add_rm,      add_ps,      add_doctor};

constexpr int kFailed = 1, kMisuse = 2;

// Says more than CLI11 about a command line that it refuses; "": nothing more.
std::string describe_misuse(std::span<char* const> words, const CLI::App& verb) {
  const bool has_verb = verb.get_parent() != nullptr;
  if (has_verb && words[1][0] == '-')
    return fmt::format("options go behind the verb: millrace {} ...", verb.get_name());
  std::string problem = describe_unknown_flag(words, verb);
  return problem.empty() && has_verb ? describe_unexpected_word(verb) : problem;
}

// CLI11's message, in the words of this program where its own are those of its code.
std::string describe_error(const CLI::Error& e) {
  const std::string text = e.what();
  constexpr std::string_view kConversion = "Could not convert: ", kRepeated = ": At Most 1 required";
  if (text == "A subcommand is required") return "give a verb, such as: millrace run \"Why is the sky blue?\"";
  if (text.starts_with(kConversion)) return text.substr(kConversion.size()) + ": not a number";
  if (const size_t at = text.find(kRepeated); at != std::string::npos)
    return text.substr(0, at) + ": is given more than once";
  const size_t missing = text.find(": 1 required ");
  return missing == std::string::npos ? text : text.substr(0, missing) + ": its value is missing";
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Run language models on the machine at hand: fast without tuning, and able to say why.", "millrace"};
  app.formatter(help_format());  // of the verbs too, which are added later
  app.set_version_flag("--version", std::string(version()));
  app.require_subcommand(1);
  app.failure_message([&](const CLI::App*, const CLI::Error& e) {
    const std::span<char* const> words(argv, static_cast<size_t>(argc));
    const auto verbs = app.get_subcommands();  // the given ones
    std::string problem = describe_misuse(words, verbs.empty() ? app : *verbs.front());
    if (problem.empty()) problem = describe_error(e);
    const std::string verb = verbs.empty() ? "" : verbs.front()->get_name() + " ";
    return fmt::format("millrace: {}{} see 'millrace {}--help'\n", problem, problem.ends_with("?") ? "" : ";", verb);
  });
  for (auto* add : kVerbs) add(app);
  const auto known = app.get_subcommands([](CLI::App*) { return true; });
  const auto is_named = [&](const CLI::App* verb) { return verb->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(known.begin(), known.end(), is_named)) {
    const std::string hint = hint_about_verb(argv[1], app);
    fail(ErrorKind::Usage, "unknown verb '{}'; {}{}see 'millrace --help'", argv[1], hint, hint.empty() ? "" : " ");
  }
  for (CLI::App* verb : known) refuse_empty_values(*verb);
  try {
    app.parse(argc, argv);
    flush_stdout();
    return 0;
  } catch (const CLI::Success& e) {  // --help, --version
    app.exit(e);
    flush_stdout();
    return 0;
  } catch (const CLI::ParseError& e) {
    app.exit(e);
    return kMisuse;
  }
}

int report(const char* message, int code) {
  tell(Stream::Stderr, "millrace: {}\n", message);
  return code;
}

// Files that are opened later must not become stdin, stdout or stderr where the caller has closed these: an answer
// would be written to one of them.
void occupy_closed_streams() {
  int file = ::open("/dev/null", O_RDONLY);
  while (file >= 0 && file <= STDERR_FILENO) file = ::open("/dev/null", O_RDONLY);
  if (file >= 0) ::close(file);
}

// A reader that closes the pipe early, such as `head`, is not an error to report: end by SIGPIPE like other programs.
int end_by_sigpipe() {
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
  return kFailed;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  try {
    occupy_closed_streams();
    set_verbosity(0);
    catch_interrupts();
    return parse_and_run(argc, argv);
  } catch (const Error& e) {
    const int code = report(e.what(), e.kind() == ErrorKind::Usage ? kMisuse : kFailed);
    if (e.kind() == ErrorKind::Cancelled && interrupted()) end_by_interrupt();  // so that the loop of a shell ends, too
    return code;
  } catch (const std::bad_alloc&) {
    return report("out of memory", kFailed);
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::broken_pipe) return end_by_sigpipe();
    // fmt throws it where an answer is longer than the buffer.
    const bool printing = std::string_view(e.what()).starts_with("cannot write to file");
    return report((printing ? "cannot write to stdout: " + e.code().message() : e.what()).c_str(), kFailed);
  } catch (const std::exception& e) {
    return report(e.what(), kFailed);
  }
}
