// Results of a load run, as numbers and as plots.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/load/load_client.h"

namespace millrace {

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0, mean = 0;
};
Percentiles percentiles(std::vector<double> values);  // all 0 for an empty list

struct LoadReport {
  size_t whole = 0, failed = 0;
  double seconds = 0;  // from the first request to the last byte
  double requests_per_second = 0, tokens_per_second = 0, prompt_tokens_per_second = 0;
  double cached_share = 0;                    // of the prompt tokens
  Percentiles ttft, tpot, itl, whole_answer;  // milliseconds
  std::vector<double> ttft_ms, itl_ms;        // sorted
  std::vector<double> rate_over_time;         // tokens per second, for each second
  std::string problem;                        // the most frequent one
};

// TTFT: from sending to the first piece. TPOT: time after that per further token of a request. ITL: gaps between
// pieces, over all requests.
LoadReport summarise(const std::vector<LoadedRequest>& requests);

nlohmann::json to_json(const LoadReport& report);
nlohmann::json to_json(const std::vector<LoadedRequest>& requests);  // every request, times in seconds since the start
void print_report(const LoadReport& report);                         // table and plot for a terminal
std::string plot_svg(const LoadReport& report, const std::string& title);

}  // namespace millrace
