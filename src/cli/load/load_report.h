// What the requests of a load run add up to, as numbers and as pictures.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/load/load_client.h"

namespace millrace {

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0, mean = 0;
};
Percentiles percentiles(std::vector<double> values);  // all 0 of nothing

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

// TTFT: from sending to the first piece. TPOT: the time after it for each further token of a request. ITL: the gaps
// between pieces, of all requests together.
LoadReport summarise(const std::vector<LoadedRequest>& requests);

nlohmann::json to_json(const LoadReport& report);
nlohmann::json to_json(const std::vector<LoadedRequest>& requests);  // each of them, times in seconds from the start
void print_report(const LoadReport& report);                         // a table and a plot, for a terminal
std::string plot_svg(const LoadReport& report, const std::string& title);

}  // namespace millrace
