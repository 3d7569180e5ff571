#include "cli/help_format.h"

#include <sstream>
#include <string>
#include <string_view>

namespace millrace {
namespace {

constexpr size_t kColumns = 80, kAbout = 30;  // where descriptions begin

std::string wrapped(const std::string& text, size_t width) {
  std::istringstream words(text);
  std::string out, word;
  size_t used = 0;  // of the line
  while (words >> word) {
    const bool fits = used == 0 || used + 1 + word.size() <= width;
    if (!out.empty()) out += fits ? ' ' : '\n';
    used = fits && used > 0 ? used + 1 + word.size() : word.size();
    out += word;
  }
  return out;
}

class HelpFormat : public CLI::Formatter {
 public:
  HelpFormat() { column_width(kAbout); }

  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option), kColumns - kAbout);
  }

  // CLI11 writes the type in front of a range that names it already: INT:INT in [0 - 9].
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);
    for (const std::string_view twice : {":INT in", ":FLOAT in"}) {
      if (const size_t at = text.find(twice); at != std::string::npos) text.replace(at, twice.size(), " in");
    }
    return text;
  }

  std::string make_subcommand(const CLI::App* verb) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, verb->get_display_name(true), wrapped(verb->get_description(), kColumns - kAbout),
                             kAbout);
    return out.str();
  }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(CLI::Formatter::make_description(app), kColumns) + "\n";
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_format() { return std::make_shared<HelpFormat>(); }

}  // namespace millrace
