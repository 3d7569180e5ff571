// The endpoints. Each runs on a worker, throws ApiError or Error for a bad request, and answers through its Call:
// immediately, or when the engine is done.
#pragma once

#include <functional>
#include <memory>

#include "server/call.h"
#include "server/requests/schema.h"

namespace millrace {

class ServedModel;
class AdapterList;
struct Cascade;
class ModelPool;
class TaskQueue;
class Metrics;
class KeptStreams;
class StoredResponses;

struct ApiContext {
  ServedModel& model;  // the one that the call chose; for routes that choose none, the one that was used last
  ModelPool& models;   // all
  AdapterList& adapters;
  const Cascade* cascade;  // of two of them; null: none
  TaskQueue& workers;
  TaskQueue& downloads;  // of models: one at a time, for minutes
  Metrics& metrics;
  KeptStreams& kept;                        // background responses
  std::shared_ptr<StoredResponses> stored;  // responses that ended; sinks hold it too
  std::function<size_t()> connections;
  bool asks_for_keys = false;
  std::string lora_dir;  // adapters below this folder may be loaded over the API; empty: none
};

using Endpoint = void(const std::shared_ptr<Call>& call, ApiContext& context);

Endpoint answer_chat, answer_completions, answer_embeddings, answer_responses, answer_models, answer_model,
    answer_tokenize, answer_detokenize, answer_tokenizer_info, answer_openapi, answer_health, answer_live, answer_ready,
    answer_metrics, answer_page, answer_engine, answer_dataflow, answer_infill, answer_response, answer_input_items,
    answer_cancel_response, answer_delete_response, answer_rerank, answer_score, answer_search, answer_load_lora,
    answer_unload_lora, answer_sessions, answer_input_tokens;

// Anthropic's protocol and Ollama's.
Endpoint answer_messages, answer_count_tokens, answer_ollama_chat, answer_ollama_generate, answer_ollama_embed,
    answer_ollama_embeddings, answer_ollama_tags, answer_ollama_show, answer_ollama_ps, answer_ollama_version,
    answer_ollama_pull, answer_ollama_delete;

// The key for fair scheduling: the API key's name and, below it, the request's `user`.
std::string fair_client(const Call& call, const std::string& user);

// Schemas of the answers, for the OpenAPI document.
Schema chat_answer_schema();
Schema completions_answer_schema();
Schema embeddings_answer_schema();
Schema rerank_answer_schema();
Schema score_answer_schema();
Schema search_answer_schema();
Schema responses_answer_schema();
Schema delete_answer_schema();
Schema input_items_answer_schema();
Schema input_tokens_answer_schema();
Schema models_answer_schema();
Schema model_answer_schema();
Schema load_lora_schema();
Schema unload_lora_schema();
Schema tokenize_answer_schema();
Schema detokenize_answer_schema();
Schema tokenizer_info_schema();
Schema health_answer_schema();
Schema engine_answer_schema();
Schema dataflow_answer_schema();
Schema sessions_answer_schema();
Schema infill_answer_schema();
Schema messages_answer_schema();
Schema count_tokens_answer_schema();

}  // namespace millrace
