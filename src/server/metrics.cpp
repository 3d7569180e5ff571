#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <mutex>

#include "base/build_id.h"

namespace millrace {
namespace {

using prometheus::Histogram;
using Labels = prometheus::Labels;

const Histogram::BucketBoundaries kFirstToken{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                              1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const Histogram::BucketBoundaries kNextToken{0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                             0.2,   0.3,    0.4,   0.5,    0.75, 1,     2.5,  5,     10,  20};
const Histogram::BucketBoundaries kRequest{0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,  2.5,
                                           5,    10,   15,  20,  30,  60,  120, 240, 480};
const Histogram::BucketBoundaries kTokens{1,   2,    5,    10,   20,    50,    100,   200,
                                          500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

}  // namespace

// Families and series are created once; the engine's counters are copied in for each scrape.
struct Metrics::Series {
  prometheus::Registry registry;
  EngineStats kept;  // totals of engines that have ended
  Labels model;
  std::mutex mutex;

  prometheus::Family<prometheus::Gauge>&parked_states, &parked_bytes;
  prometheus::Family<prometheus::Counter>&http, &success, &cascade;
  Histogram &http_seconds, &first_token, &next_token, &per_token, &request, &queued, &prefill, &decode, &prompt,
      &generated;
  prometheus::Counter &prompt_tokens, &generation_tokens, &prefix_queries, &prefix_hits, &preemptions, &evicted, &busy,
      &joules, &steps, &steps_ahead, &given_up, &drafted, &accepted, &wasted, &restored, &dropped;
  prometheus::Gauge &running, &waiting, &kv_usage, &kv_blocks, &kv_cached, &snapshots, &snapshot_bytes, &rate,
      &connections;

  explicit Series(const std::string& name)
      : model{{"model_name", name}},
        parked_states(gauges("millrace:parked_states", "States of parked sessions, by place")),
        parked_bytes(gauges("millrace:parked_bytes", "Bytes of these states outside of the device")),
        http(prometheus::BuildCounter()
                 .Name("http_requests_total")
                 .Help("Answers by route and status")
                 .Register(registry)),
        success(counters("vllm:request_success_total", "Choices that ended, by reason")),
        cascade(counters("millrace:cascade_answers_total", "Decisions of the cascade, by the model that answers")),
        http_seconds(
            histogram("http_request_duration_seconds", "From a request's last byte to its answer's", kRequest)),
        first_token(histogram("vllm:time_to_first_token_seconds", "From arrival to the first token", kFirstToken)),
        next_token(histogram("vllm:inter_token_latency_seconds", "Between two tokens of a stream", kNextToken)),
        per_token(histogram("vllm:request_time_per_output_token_seconds",
                            "Mean time per token of a choice, after its first", kNextToken)),
        request(histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token", kRequest)),
        queued(histogram("vllm:request_queue_time_seconds", "From arrival to the first step", kRequest)),
        prefill(histogram("vllm:request_prefill_time_seconds", "From the first step to the first token", kRequest)),
        decode(histogram("vllm:request_decode_time_seconds", "From the first token to the last", kRequest)),
        prompt(histogram("vllm:request_prompt_tokens", "Tokens of prompts", kTokens)),
        generated(histogram("vllm:request_generation_tokens", "Tokens of answers", kTokens)),
        prompt_tokens(counter("vllm:prompt_tokens_total", "Tokens of admitted prompts")),
        generation_tokens(counter("vllm:generation_tokens_total", "Tokens generated")),
        prefix_queries(counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix tree")),
        prefix_hits(counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix tree")),
        preemptions(counter("vllm:num_preemptions_total", "Running choices that gave their pages to others")),
        evicted(counter("millrace:evicted_blocks_total", "KV blocks that the prefix tree gave up")),
        busy(counter("millrace:busy_seconds_total", "Time spent in steps")),
        joules(counter("millrace:energy_joules_total", "Energy of steps, where the device counts it")),
        steps(counter("millrace:steps_total", "Steps of the engine")),
        steps_ahead(counter("millrace:steps_ahead_total", "Of those, started while the one before ran")),
        given_up(counter("millrace:cascade_given_up_tokens_total",
                         "Tokens of the small model where the large one answered")),
        drafted(counter("millrace:drafted_tokens_total", "Draft tokens that steps checked")),
        accepted(counter("millrace:accepted_tokens_total", "Of those, tokens that were generated")),
        wasted(counter("millrace:wasted_draft_tokens_total", "Draft tokens that steps checked and rejected")),
        restored(counter("millrace:parked_restored_total", "Parked states that returned to the device")),
        dropped(counter("millrace:parked_dropped_total", "Parked states that no limit allowed, or that were damaged")),
        running(gauge("vllm:num_requests_running", "Choices that hold KV blocks")),
        waiting(gauge("vllm:num_requests_waiting", "Choices that wait for KV blocks")),
        kv_usage(gauge("vllm:kv_cache_usage_perc", "KV blocks in use; 1 is all")),
        kv_blocks(gauge("millrace:kv_blocks", "KV blocks there are")),
        kv_cached(gauge("millrace:kv_blocks_cached", "KV blocks held by the prefix tree alone")),
        snapshots(gauge("millrace:snapshots", "Snapshots of recurrent state in the prefix tree")),
        snapshot_bytes(gauge("millrace:snapshot_bytes", "Bytes of these snapshots")),
        rate(gauge("millrace:generation_tokens_per_second", "Tokens generated over the last seconds")),
        connections(gauge("millrace:connections", "Open connections")) {
    prometheus::BuildGauge()
        .Name("millrace:build_info")
        .Help("Version and build")
        .Register(registry)
        .Add({{"version", std::string(version())}, {"build", build_id()}})
        .Set(1);
  }

  prometheus::Family<prometheus::Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  prometheus::Counter& counter(const char* name, const char* help) { return counters(name, help).Add(model); }
  prometheus::Family<prometheus::Gauge>& gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
  }
  prometheus::Gauge& gauge(const char* name, const char* help) { return gauges(name, help).Add(model); }
  void set_by_place(prometheus::Family<prometheus::Gauge>& family, const char* place, int64_t value) {
    Labels labels = model;
    labels["place"] = place;
    family.Add(labels).Set(double(value));
  }
  Histogram& histogram(const char* name, const char* help, const Histogram::BucketBoundaries& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(model, buckets);
  }

  // Raises a counter to the engine's total.
  static void raise_to(prometheus::Counter& counter, double total) {
    if (total > counter.Value()) counter.Increment(total - counter.Value());
  }

  void copy(const EngineStats& e) {
    raise_to(prompt_tokens, double(e.prompt_tokens));
    raise_to(prefix_queries, double(e.prompt_tokens));
    raise_to(prefix_hits, double(e.cached_tokens));
    raise_to(generation_tokens, double(e.generated_tokens));
    raise_to(preemptions, double(e.preemptions));
    raise_to(evicted, double(e.evicted_blocks));
    raise_to(busy, e.busy_seconds);
    raise_to(joules, e.joules.value_or(0));
    raise_to(steps, double(e.steps));
    raise_to(steps_ahead, double(e.steps_ahead));
    raise_to(drafted, double(e.drafted_tokens));
    raise_to(accepted, double(e.accepted_tokens));
    raise_to(wasted, double(e.drafted_tokens - e.accepted_tokens));
    running.Set(double(e.running));
    waiting.Set(double(e.waiting));
    kv_usage.Set(e.kv_blocks > 0 ? double(e.kv_blocks_used) / double(e.kv_blocks) : 0);
    kv_blocks.Set(double(e.kv_blocks));
    kv_cached.Set(double(e.kv_blocks_cached));
    snapshots.Set(double(e.snapshots));
    snapshot_bytes.Set(double(e.snapshot_bytes));
    rate.Set(e.tokens_per_second);
    raise_to(restored, double(e.parked.restored));
    raise_to(dropped, double(e.parked.dropped));
    set_by_place(parked_states, "device", e.parked.pages);
    set_by_place(parked_states, "memory", e.parked.in_memory);
    set_by_place(parked_states, "disk", e.parked.on_disk);
    set_by_place(parked_bytes, "memory", e.parked.memory_bytes);
    set_by_place(parked_bytes, "disk", e.parked.disk_bytes);
  }
};

Metrics::Metrics(const std::string& model) : series_(std::make_unique<Series>(model)) {}
Metrics::~Metrics() = default;

void Metrics::count_http(const std::string& route, int status, double seconds) {
  series_->http.Add({{"handler", route}, {"status", std::to_string(status)}}).Increment();
  series_->http_seconds.Observe(seconds);
}

void Metrics::observe_first_token(double seconds) { series_->first_token.Observe(seconds); }
void Metrics::observe_next_token(double seconds) { series_->next_token.Observe(seconds); }

void Metrics::observe_choice(const Choice& choice) {
  Series& s = *series_;
  Labels labels = s.model;
  labels["finished_reason"] = choice.reason;
  s.success.Add(labels).Increment();
  s.request.Observe(choice.seconds);
  s.queued.Observe(choice.queued_seconds);
  s.prompt.Observe(choice.prompt_tokens);
  s.generated.Observe(choice.completion_tokens);
  if (choice.completion_tokens == 0) return;
  s.prefill.Observe(choice.first_token_seconds - choice.queued_seconds);
  s.decode.Observe(choice.seconds - choice.first_token_seconds);
  if (choice.completion_tokens > 1) {
    s.per_token.Observe((choice.seconds - choice.first_token_seconds) / (choice.completion_tokens - 1));
  }
}

void Metrics::count_cascade(const std::string& answered_by, int64_t given_up) {
  Labels labels = series_->model;
  labels["answered_by"] = answered_by;
  series_->cascade.Add(labels).Increment();
  series_->given_up.Increment(double(given_up));
}

void Metrics::keep_totals(const EngineStats& engine) {
  const std::lock_guard lock(series_->mutex);
  EngineStats& kept = series_->kept;
  kept += engine;
  kept.running = kept.waiting = kept.kv_blocks = kept.kv_blocks_used = kept.kv_blocks_cached = 0;
  kept.tokens_per_second = 0;
  kept.parked.pages = kept.parked.in_memory = kept.parked.memory_bytes = 0;
  kept.parked.on_disk = kept.parked.disk_bytes = 0;
}

std::string Metrics::text(const EngineStats* engine, size_t connections) {
  const std::lock_guard lock(series_->mutex);
  series_->connections.Set(double(connections));
  EngineStats sum = series_->kept;
  if (engine != nullptr) series_->copy(sum += *engine);
  return prometheus::TextSerializer().Serialize(series_->registry.Collect());
}

EngineStats& operator+=(EngineStats& sum, const EngineStats& one) {
  for (const auto field : {&EngineStats::running, &EngineStats::waiting, &EngineStats::kv_blocks,
                           &EngineStats::kv_blocks_used, &EngineStats::kv_blocks_cached}) {
    sum.*field += one.*field;
  }
  for (const auto field :
       {&EngineStats::steps, &EngineStats::steps_ahead, &EngineStats::requests, &EngineStats::prompt_tokens,
        &EngineStats::cached_tokens, &EngineStats::generated_tokens, &EngineStats::drafted_tokens,
        &EngineStats::accepted_tokens, &EngineStats::preemptions, &EngineStats::evicted_blocks}) {
    sum.*field += one.*field;
  }
  sum.tokens_per_second += one.tokens_per_second;
  sum.busy_seconds += one.busy_seconds;
  sum.parked += one.parked;
  if (one.joules) sum.joules = sum.joules.value_or(0) + *one.joules;
  return sum;
}

}  // namespace millrace
