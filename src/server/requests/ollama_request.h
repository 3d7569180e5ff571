// The bodies of Ollama's /api/chat, /api/generate, /api/embed and so on, and their translation to chat requests.
#pragma once

#include "server/requests/chat_request.h"

namespace millrace {

struct OllamaRequest : SamplingRequest {  // `options` are read into the sampling fields
  Json messages = Json::array(), tools = Json::array(), format, think;
  std::string prompt, suffix, system;
  bool raw = false;  // the prompt is the whole text, without the chat template
  std::optional<int> num_predict;
  bool logprobs = false;
  int top_logprobs = 0;

  OllamaRequest() { stream = true; }
};

const Fields<OllamaRequest>& ollama_chat_fields();
const Fields<OllamaRequest>& ollama_generate_fields();

ChatRequest to_chat_request(const OllamaRequest& request);

struct OllamaEmbedRequest {
  std::string model;
  Json input;
  std::optional<int> dimensions;
  bool truncate = true;
};
const Fields<OllamaEmbedRequest>& ollama_embed_fields();       // /api/embed
const Fields<OllamaEmbedRequest>& ollama_embeddings_fields();  // /api/embeddings, the older one

struct OllamaNameRequest {
  std::string model;
  bool stream = true;
};
const Fields<OllamaNameRequest>& ollama_show_fields();
const Fields<OllamaNameRequest>& ollama_pull_fields();

}  // namespace millrace
