#include "text/jinja/value/strftime.h"

#include <ctime>

#include "text/jinja/template_error.h"
#include "text/jinja/value/text_builder.h"

namespace millrace::jinja {
namespace {

std::string format_one(const std::string& directive, const std::tm& time) {
  char buffer[256];
  const size_t size = std::strftime(buffer, sizeof buffer, directive.c_str(), &time);
  return std::string(buffer, size);
}

}  // namespace

std::string format_local_time(std::string_view format, std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  const auto fraction = time - std::chrono::floor<std::chrono::seconds>(time);
  std::tm local{};
  if (!localtime_r(&seconds, &local)) fail_template("strftime_now: the clock shows no valid time");
  TextBuilder out;
  for (size_t at = 0; at < format.size();) {
    const size_t percent = std::min(format.find('%', at), format.size());
    out.append(format.substr(at, percent - at));
    if (percent + 1 >= format.size()) {
      out.append(format.substr(percent));
      break;
    }
    // Flags such as %-d: an extension of glibc that Python passes on.
    size_t end = percent + 1;
    while (end < format.size() && (format[end] == '-' || format[end] == '_' || format[end] == '^' ||
                                   format[end] == '#' || (format[end] >= '0' && format[end] <= '9'))) {
      ++end;
    }
    if (end < format.size() && (format[end] == 'E' || format[end] == 'O')) ++end;
    end = std::min(end + 1, format.size());
    const std::string directive(format.substr(percent, end - percent));
    if (directive.size() > 8) fail_template("strftime_now does not understand '{}'", directive);
    if (directive == "%f") {
      out.append(fmt::format("{:06}", std::chrono::duration_cast<std::chrono::microseconds>(fraction).count()));
    } else if (directive != "%z" && directive != "%Z") {
      out.append(format_one(directive, local));
    }
    at = end;
  }
  return out.take();
}

}  // namespace millrace::jinja
