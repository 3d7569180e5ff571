#include "cli/load/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

namespace millrace {
namespace {

nlohmann::json json_of(const Percentiles& p) {
  return {{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}, {"mean", p.mean}};
}

std::string most_frequent_problem(const std::vector<LoadedRequest>& requests) {
  std::map<std::string, int> counts;
  for (const LoadedRequest& request : requests) {
    if (!request.problem.empty()) ++counts[request.problem];
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? "" : most->first;
}

// A bar chart of block characters in steps of one eighth.
std::string bars(const std::vector<double>& values, size_t width) {
  static const char* const kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const double top = values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  std::string text;
  width = std::min(width, values.size());
  for (size_t i = 0; i < width && top > 0; ++i) {
    const size_t from = i * values.size() / width, to = std::max(from + 1, (i + 1) * values.size() / width);
    const double mean = std::accumulate(values.begin() + static_cast<ptrdiff_t>(from),
                                        values.begin() + static_cast<ptrdiff_t>(to), 0.0) /
                        static_cast<double>(to - from);
    text += kBlocks[static_cast<size_t>(std::lround(8 * mean / top))];
  }
  return text;
}

// A histogram over a logarithmic scale.
std::vector<double> histogram(const std::vector<double>& sorted, size_t parts, double& from, double& to) {
  std::vector<double> counts(parts, 0);
  if (sorted.empty()) return counts;
  from = std::max(sorted.front(), 0.01);
  to = std::max(sorted.back(), from * 1.01);
  for (const double value : sorted) {
    const double place = std::log(std::max(value, from) / from) / std::log(to / from);
    ++counts[std::min(parts - 1, static_cast<size_t>(place * static_cast<double>(parts)))];
  }
  return counts;
}

}  // namespace

Percentiles percentiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {  // linear interpolation, as in NumPy
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {at(0.5), at(0.9), at(0.99),
          std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size())};
}

LoadReport summarise(const std::vector<LoadedRequest>& requests) {
  LoadReport report;
  std::vector<double> tpot, answers;
  int64_t tokens = 0, prompt = 0, cached = 0;
  double begin = 1e300, end = 0;
  for (const LoadedRequest& request : requests) {
    if (!request.problem.empty() || request.pieces.empty()) {
      ++report.failed;
      continue;
    }
    ++report.whole;
    begin = std::min(begin, request.begin);
    end = std::max(end, request.end);
    tokens += request.tokens;
    prompt += request.prompt_tokens;
    cached += request.cached_tokens;
    report.ttft_ms.push_back((request.pieces.front() - request.begin) * 1000);
    answers.push_back((request.end - request.begin) * 1000);
    for (size_t i = 1; i < request.pieces.size(); ++i)
      report.itl_ms.push_back((request.pieces[i] - request.pieces[i - 1]) * 1000);
    if (request.tokens > 1)
      tpot.push_back((request.pieces.back() - request.pieces.front()) * 1000 / static_cast<double>(request.tokens - 1));
    for (const double piece : request.pieces) {
      const auto second = static_cast<size_t>(piece);
      if (report.rate_over_time.size() <= second) report.rate_over_time.resize(second + 1);
      report.rate_over_time[second] += static_cast<double>(request.tokens) / static_cast<double>(request.pieces.size());
    }
  }
  report.problem = most_frequent_problem(requests);
  std::sort(report.ttft_ms.begin(), report.ttft_ms.end());
  std::sort(report.itl_ms.begin(), report.itl_ms.end());
  report.ttft = percentiles(report.ttft_ms);
  report.itl = percentiles(report.itl_ms);
  report.tpot = percentiles(std::move(tpot));
  report.whole_answer = percentiles(std::move(answers));
  if (report.whole == 0) return report;
  report.seconds = std::max(end - begin, 1e-9);
  report.requests_per_second = static_cast<double>(report.whole) / report.seconds;
  report.tokens_per_second = static_cast<double>(tokens) / report.seconds;
  report.prompt_tokens_per_second = static_cast<double>(prompt) / report.seconds;
  report.cached_share = prompt > 0 ? static_cast<double>(cached) / static_cast<double>(prompt) : 0;
  return report;
}

nlohmann::json to_json(const LoadReport& r) {
  return {{"requests", r.whole},
          {"failed", r.failed},
          {"problem", r.problem},
          {"seconds", r.seconds},
          {"requests_per_second", r.requests_per_second},
          {"tokens_per_second", r.tokens_per_second},
          {"prompt_tokens_per_second", r.prompt_tokens_per_second},
          {"cached_share", r.cached_share},
          {"ttft_ms", json_of(r.ttft)},
          {"tpot_ms", json_of(r.tpot)},
          {"itl_ms", json_of(r.itl)},
          {"answer_ms", json_of(r.whole_answer)},
          {"tokens_per_second_over_time", r.rate_over_time}};
}

nlohmann::json to_json(const std::vector<LoadedRequest>& requests) {
  nlohmann::json all = nlohmann::json::array();
  for (const LoadedRequest& r : requests) {
    all.push_back({{"begin", r.begin},
                   {"first", r.pieces.empty() ? nlohmann::json() : nlohmann::json(r.pieces.front())},
                   {"end", r.end},
                   {"prompt_tokens", r.prompt_tokens},
                   {"cached_tokens", r.cached_tokens},
                   {"tokens", r.tokens},
                   {"pieces", r.pieces},
                   {"problem", r.problem}});
  }
  return all;
}

void print_report(const LoadReport& r) {
  fmt::print("{} requests in {:.1f} s, {} failed{}{}\n", r.whole, r.seconds, r.failed, r.problem.empty() ? "" : ": ",
             r.problem);
  if (r.whole == 0) return;
  fmt::print("{:.2f} requests/s, {:.1f} tokens/s out, {:.1f} tokens/s in ({:.0f} % of them cached)\n\n",
             r.requests_per_second, r.tokens_per_second, r.prompt_tokens_per_second, 100 * r.cached_share);
  fmt::print("  {:<26} {:>9} {:>9} {:>9} {:>9}\n", "milliseconds", "p50", "p90", "p99", "mean");
  const std::pair<const char*, const Percentiles*> rows[] = {{"TTFT, to the first token", &r.ttft},
                                                             {"TPOT, per further token", &r.tpot},
                                                             {"ITL, between tokens", &r.itl},
                                                             {"whole answer", &r.whole_answer}};
  for (const auto& [name, p] : rows)
    fmt::print("  {:<26} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}\n", name, p->p50, p->p90, p->p99, p->mean);
  constexpr size_t kWidth = 60;
  fmt::print("\n  tokens/s, from 0 to {} s\n  {}\n", r.rate_over_time.size(), bars(r.rate_over_time, kWidth));
  const std::pair<const char*, const std::vector<double>*> distributions[] = {{"TTFT", &r.ttft_ms}, {"ITL", &r.itl_ms}};
  for (const auto& [name, values] : distributions) {
    double from = 0, to = 0;
    const std::vector<double> counts = histogram(*values, kWidth, from, to);
    if (!values->empty())
      fmt::print("  {}, how often, from {:.1f} to {:.1f} ms (logarithmic)\n  {}\n", name, from, to,
                 bars(counts, kWidth));
  }
}

}  // namespace millrace
