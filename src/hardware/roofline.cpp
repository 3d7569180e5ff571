#include "hardware/roofline.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace millrace {
namespace {

struct Roof {
  const char* name;
  double gops;
};

// Highest first. A number format that is no faster than f32 gets no line.
std::vector<Roof> roofs_of(const Ceilings& c) {
  std::vector<Roof> roofs = {{"int8", c.int8_gops}, {"bf16", c.bf16_gflops}, {"f16", c.f16_gflops}};
  std::erase_if(roofs, [&](const Roof& roof) { return roof.gops < 1.02 * c.f32_gflops; });
  roofs.push_back({"f32", c.f32_gflops});
  std::stable_sort(roofs.begin(), roofs.end(), [](const Roof& a, const Roof& b) { return a.gops > b.gops; });
  return roofs;
}

// The name comes from /proc/cpuinfo and may contain any character.
std::string escaped(const std::string& text) {
  std::string safe;
  for (char c : text) {
    if (c == '<' || c == '>' || c == '&' || c == '"') continue;
    safe += c;
  }
  return safe;
}

std::string rate(double gops) {
  return gops >= 1000 ? fmt::format("{:.2f} TOP/s", gops / 1000) : fmt::format("{:.0f} GOP/s", gops);
}

// Both axes are log2. Intensity ranges from 1 operation per byte to slightly beyond the highest ridge.
struct Axes {
  double x_end, y_begin, y_end;

  Axes(const Ceilings& c, double highest) {
    x_end = std::max(4.0, std::ceil(std::log2(highest / c.read_gbs)) + 2);
    y_begin = std::floor(std::log2(c.read_gbs));
    y_end = std::log2(highest);
  }
  double x_part(double intensity) const { return std::log2(intensity) / x_end; }
  double y_part(double gops) const { return (std::log2(gops) - y_begin) / std::max(1.0, y_end - y_begin); }
};

constexpr int kColumns = 56, kRows = 9;

// One character per cell: the memory slope, then each flat roof with its name at the end.
std::vector<std::string> draw_cells(const Ceilings& c, const std::vector<Roof>& roofs, const Axes& axes) {
  std::vector<std::string> cells(kRows, std::string(kColumns, ' '));
  const auto row_of = [&](double gops) {
    return std::clamp(kRows - 1 - static_cast<int>(std::lround(axes.y_part(gops) * (kRows - 1))), 0, kRows - 1);
  };
  for (int column = 0; column < kColumns; ++column) {
    const double slope = c.read_gbs * std::exp2(axes.x_end * column / (kColumns - 1));
    for (const Roof& roof : roofs) {
      if (slope >= roof.gops) cells[static_cast<size_t>(row_of(roof.gops))][static_cast<size_t>(column)] = '-';
    }
    if (slope < roofs.front().gops) cells[static_cast<size_t>(row_of(slope))][static_cast<size_t>(column)] = '/';
  }
  for (const Roof& roof : roofs)
    cells[static_cast<size_t>(row_of(roof.gops))] += fmt::format(" {} {}", roof.name, rate(roof.gops));
  return cells;
}

std::string bandwidth_line(const Ceilings& c) {
  std::string line = fmt::format("memory reads {:.1f} GB/s", c.read_gbs);
  std::string points;
  for (const ReadRate& point : c.read_by_threads) {
    points += fmt::format("{}{}: {:.1f}", points.empty() ? "" : ", ", point.threads, point.gbs);
  }
  if (!points.empty()) line += fmt::format(" (by threads {})", points);
  return line + fmt::format(", cache {:.0f} GB/s, a parallel region {:.1f} us\n", c.cache_gbs, c.region_us);
}

constexpr double kLeft = 60, kTop = 50, kWidth = 560, kHeight = 300;  // of the plot, in SVG units

double svg_x(const Axes& axes, double intensity) { return kLeft + kWidth * axes.x_part(intensity); }
double svg_y(const Axes& axes, double gops) { return kTop + kHeight * (1 - axes.y_part(gops)); }

std::string svg_grid(const Axes& axes) {
  constexpr double kBottom = kTop + kHeight, kRight = kLeft + kWidth;
  std::string svg;
  for (int power = 0; power <= static_cast<int>(axes.x_end); ++power) {
    const double x = svg_x(axes, std::exp2(power));
    svg += fmt::format("<path d=\"M{:.1f} {}V{}\" stroke=\"#ddd\"/>\n", x, kTop, kBottom);
    if (power % 2 != 0) continue;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x, kBottom + 18, 1 << power);
  }
  for (int power = static_cast<int>(std::ceil(axes.y_begin)); power <= static_cast<int>(axes.y_end); ++power) {
    const double y = svg_y(axes, std::exp2(power));
    svg += fmt::format("<path d=\"M{} {:.1f}H{}\" stroke=\"#ddd\"/>\n", kLeft, y, kRight);
    if (power % 2 != 0) continue;
    svg +=
        fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 6, y + 4, std::exp2(power));
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">operations per byte read</text>\n",
                     kLeft + kWidth / 2, kBottom + 40);
  return svg + fmt::format("<text x=\"10\" y=\"{}\">GOP/s</text>\n", kTop - 8);
}

std::string svg_roof(const Roof& roof, const Ceilings& c, const Axes& axes) {
  const double x = svg_x(axes, std::max(1.0, roof.gops / c.read_gbs)), y = svg_y(axes, roof.gops);
  return fmt::format(
      "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}H{}\" fill=\"none\" stroke=\"#1463a5\" stroke-width=\"2\"/>\n"
      "<text x=\"{}\" y=\"{:.1f}\">{} {}</text>\n",
      svg_x(axes, 1), svg_y(axes, c.read_gbs), x, y, kLeft + kWidth, kLeft + kWidth + 6, y + 4, roof.name,
      rate(roof.gops));
}

}  // namespace

std::string roofline_text(const Hardware& hardware) {
  const Ceilings& c = hardware.ceilings;
  const auto roofs = roofs_of(c);
  const Axes axes(c, roofs.front().gops);
  std::string text = fmt::format("ceilings of {} threads, {}\n", hardware.threads,
                                 c.measured ? "measured" : "guessed (not measured yet)");
  text += bandwidth_line(c) + "\n";
  for (const auto& line : draw_cells(c, roofs, axes)) {
    text += "  |" + line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  text += "  +" + std::string(kColumns, '-') + "\n";
  std::string labels(kColumns + 8, ' ');
  for (int power = 0; power <= static_cast<int>(axes.x_end); power += 2) {
    const auto at = static_cast<size_t>(std::lround(power / axes.x_end * (kColumns - 1)));
    labels.replace(at, std::to_string(1 << power).size(), std::to_string(1 << power));
  }
  text += "   " + labels.substr(0, labels.find_last_not_of(' ') + 1) + "  operations per byte\n";
  // With 8-bit weights each row of activations does two operations per byte read.
  text += fmt::format("8-bit weights leave the slope at {:.0f} rows at once, 4-bit ones at {:.0f}\n",
                      std::ceil(c.int8_gops / c.read_gbs / 2), std::ceil(c.int8_gops / c.read_gbs / 4));
  return text;
}

std::string roofline_svg(const Hardware& hardware) {
  const Ceilings& c = hardware.ceilings;
  const auto roofs = roofs_of(c);
  const Axes axes(c, roofs.front().gops);
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 410\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"760\" height=\"410\" fill=\"#fff\"/>\n";
  svg += fmt::format("<text x=\"{}\" y=\"24\" font-size=\"16\">{}: {} threads, {}</text>\n", kLeft,
                     escaped(hardware.name), hardware.threads, c.measured ? "measured" : "guessed");
  svg += svg_grid(axes);
  for (const Roof& roof : roofs) svg += svg_roof(roof, c, axes);
  svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\">memory {:.1f} GB/s</text>\n", kLeft + 10,
                     svg_y(axes, c.read_gbs) - 14, c.read_gbs);
  return svg + "</svg>\n";
}

}  // namespace millrace
