// The plot of a load run: throughput over time, and the cumulative distribution of waiting times.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "cli/load/load_report.h"

namespace millrace {
namespace {

constexpr double kWidth = 860, kHeight = 330, kPanel = 350, kPlotHeight = 220, kTop = 60;

std::string escape(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '&')
      safe += "&amp;";
    else
      safe += c;
  }
  return safe;
}

std::string label(double x, double y, const std::string& text, const char* anchor = "middle") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escape(text));
}

std::string frame(double left, const std::string& title) {
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#999\"/>\n", left, kTop,
                     kPanel, kPlotHeight) +
         label(left + kPanel / 2, kTop - 10, title);
}

std::string line(const std::vector<std::pair<double, double>>& points, const char* color) {
  std::string path;
  for (const auto& [x, y] : points) path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x, y);
  return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, color);
}

std::string throughput(const LoadReport& r, double left) {
  std::string svg = frame(left, "tokens per second");
  const double top = r.rate_over_time.empty() ? 0 : *std::max_element(r.rate_over_time.begin(), r.rate_over_time.end());
  if (top <= 0) return svg;
  std::vector<std::pair<double, double>> points;
  const auto last = static_cast<double>(std::max<size_t>(r.rate_over_time.size() - 1, 1));
  for (size_t i = 0; i < r.rate_over_time.size(); ++i) {
    points.emplace_back(left + kPanel * static_cast<double>(i) / last,
                        kTop + kPlotHeight * (1 - r.rate_over_time[i] / top / 1.05));
  }
  return svg + line(points, "#0f6d7c") + label(left, kTop + kPlotHeight + 18, "0 s") +
         label(left + kPanel, kTop + kPlotHeight + 18, fmt::format("{:.0f} s", last)) +
         label(left - 6, kTop + 12, fmt::format("{:.0f}", top * 1.05), "end") +
         label(left - 6, kTop + kPlotHeight, "0", "end");
}

std::string waits(const LoadReport& r, double left) {
  std::string svg = frame(left, "share of waits up to, milliseconds");
  double from = 1e300, to = 0;
  for (const auto* values : {&r.ttft_ms, &r.itl_ms}) {
    if (values->empty()) continue;
    from = std::min(from, std::max(values->front(), 0.1));
    to = std::max(to, values->back());
  }
  if (to <= 0) return svg;
  from = std::pow(10, std::floor(std::log10(from)));
  to = std::pow(10, std::ceil(std::log10(std::max(to, from * 10))));
  const auto place = [&](double value) {
    return left + kPanel * std::log(std::max(value, from) / from) / std::log(to / from);
  };
  for (double mark = from; mark <= to * 1.001; mark *= 10)
    svg += label(place(mark), kTop + kPlotHeight + 18, fmt::format("{:g}", mark));
  double legend = left;
  const double y = kTop + kPlotHeight + 38;
  const std::tuple<const char*, const std::vector<double>*, const char*> lines[] = {{"TTFT", &r.ttft_ms, "#0f6d7c"},
                                                                                    {"ITL", &r.itl_ms, "#c0561f"}};
  for (const auto& [name, values, color] : lines) {
    std::vector<std::pair<double, double>> points;
    const size_t step = std::max<size_t>(values->size() / 300, 1);
    for (size_t i = 0; i < values->size(); i += step) {
      points.emplace_back(place((*values)[i]),
                          kTop + kPlotHeight * (1 - static_cast<double>(i + 1) / static_cast<double>(values->size())));
    }
    if (points.empty()) continue;
    points.emplace_back(place(values->back()), kTop);
    svg += line(points, color) +
           fmt::format("<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"3\" fill=\"{}\"/>", legend, y - 5, color) +
           label(legend + 20, y, name, "start");
    legend += 90;
  }
  return svg;
}

}  // namespace

std::string plot_svg(const LoadReport& report, const std::string& title) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
             "font-size=\"12\">\n",
             kWidth, kHeight) +
         "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" + label(kWidth / 2, 24, title) +
         throughput(report, 55) + waits(report, 470) + "</svg>\n";
}

}  // namespace millrace
