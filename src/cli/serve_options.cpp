#include "cli/serve_options.h"

#include "cli/checks.h"

namespace millrace {
namespace {

void add_model_choice(CLI::App& verb, ServeOptions& o) {
  verb.add_option("-m,--model", o.models,
                  "a .gguf file, a Hugging Face folder, a name from 'millrace models', or a folder of models; may be "
                  "given several times, and then each is loaded when a request names it")
      ->allow_extra_args(false);
  add_model_options(verb, o.model, ModelArgument::None, JsonFlag::No);
  verb.add_option("--models-memory", o.models_memory,
                  "memory for several models together, as 24GB; the least recently used idle one is unloaded for "
                  "another; default: what is free");
  verb.add_option("--load-seconds", o.load_seconds,
                  "with several models, a request waits this long for its model to be loaded")
      ->check(whole_number(0, 86400))
      ->capture_default_str();
}

void add_network(CLI::App& verb, ServeOptions& o) {
  ApiServerOptions& s = o.server;
  verb.add_option("--host", s.http.host, "address to listen on; 0.0.0.0: all of this machine")->capture_default_str();
  verb.add_option("--port", s.http.port, "port to listen on; 0: any that is free")
      ->check(whole_number(0, 65535))
      ->capture_default_str();
  verb.add_option("--served-model-name", o.names,
                  "the model's name for clients; may be given several times; with several models, one for each")
      ->allow_extra_args(false);
  verb.add_option("--api-key-file", o.key_file,
                  "lines of KEY or NAME KEY; clients must send one (or MILLRACE_API_KEYS)");
  verb.add_option("--tls-cert", s.http.certificate, "certificate chain, PEM");
  verb.add_option("--tls-key", s.http.key, "its private key, PEM");
  verb.add_option("--cors", s.cors, "an origin whose pages may use the server, or *")->allow_extra_args(false);
}

void add_cache(CLI::App& verb, ServeOptions& o) {
  verb.add_option("--parallel", o.sequences, "sequences that run at once")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  verb.add_option("--kv-tokens", o.kv_tokens,
                  "positions of the KV cache, for all sequences together; 0: a whole context for each")
      ->check(whole_number(0, (int64_t(1) << 31) - 1))
      ->capture_default_str();
  verb.add_flag("--batch-invariant", o.batch_invariant, "answers do not depend on other running requests; slower");
  verb.add_flag("--no-prefix-cache", o.no_prefix_cache, "compute every prompt from its beginning");
}

void add_parking(CLI::App& verb, ServeOptions& o) {
  ParkLimits& park = o.server.service.park;
  verb.add_option("--park-memory", o.park_memory,
                  "memory for the state of sessions whose clients run tools, once the KV cache is needed for others; "
                  "0: none")
      ->capture_default_str();
  verb.add_option("--park-dir", park.folder,
                  "a folder for such state that --park-memory cannot hold; it survives a restart; default: none");
  verb.add_option("--park-disk", o.park_disk, "bytes that each model may keep in --park-dir")->capture_default_str();
  verb.add_option("--park-seconds", park.seconds, "such state is dropped when no request used it for so long")
      ->check(in_range(1, 1e9))
      ->capture_default_str();
}

void add_limits(CLI::App& verb, ServeOptions& o) {
  ApiServerOptions& s = o.server;
  verb.add_option("--max-queue", s.service.most_waiting, "requests that wait; one more is answered 429")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  verb.add_option("--tpot-ms", s.service.engine.tpot_target_ms,
                  "prompts may not make running streams slower per token than this; 0: a tenth slower (a quarter on a "
                  "GPU), or 12 to 66 ms while short prompts are computed")
      ->check(in_range(0, 1e6))
      ->capture_default_str();
  verb.add_option("--max-body-mb", o.body_mb, "largest body of a request")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  verb.add_option("--max-connections", s.http.most_connections, "open at once")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  verb.add_option("--request-seconds", o.request_seconds, "a request must have arrived within this time")
      ->check(whole_number(1, 86400))
      ->capture_default_str();
  verb.add_option("--drain-seconds", o.drain_seconds, "after SIGTERM, running requests may take this long to finish")
      ->check(whole_number(0, 86400))
      ->capture_default_str();
}

}  // namespace

void add_serve_options(CLI::App& verb, ServeOptions& o) {
  add_model_choice(verb, o);
  add_network(verb, o);
  add_cache(verb, o);
  add_parking(verb, o);
  verb.add_option("--lora-dir", o.server.lora_dir,
                  "clients may load adapters from this folder: POST /v1/load_lora_adapter");
  add_draft_options(verb, o.draft);
  add_cascade_options(verb, o.cascade);
  add_limits(verb, o);
  verb.add_option("--log-format", o.log_format, "json, text, or auto: text on a terminal")
      ->check(CLI::IsMember({"json", "text", "auto"}))
      ->capture_default_str();
  verb.add_option("--config", o.config, "a JSON file of these options: {\"port\": 9000}");
}

}  // namespace millrace
