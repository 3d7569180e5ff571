/* millrace from C, and from every language that calls C: load a model, run many requests at once, stream and cancel.
 *
 * Structs begin with `size`, which the *_init functions set: a library newer than the program reads only the fields
 * that the program knows. No exception crosses this interface. A function that can fail returns a millrace_status, and
 * millrace_error() then gives one line that names the problem and the remedy. Strings are UTF-8. */
#ifndef MILLRACE_C_API_H
#define MILLRACE_C_API_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MILLRACE_API __attribute__((visibility("default")))
#define MILLRACE_API_VERSION 3 /* grows when functions or fields are added; nothing is removed */

typedef enum millrace_status {
  MILLRACE_OK = 0,
  MILLRACE_END = 1,     /* millrace_next: the request has ended */
  MILLRACE_TIMEOUT = 2, /* millrace_next: nothing came in time */
  /* Errors. */
  MILLRACE_USAGE = -1,         /* an argument or an option is invalid */
  MILLRACE_BAD_FILE = -2,      /* a file is truncated, corrupt or hostile */
  MILLRACE_UNSUPPORTED = -3,   /* well formed, but this build or machine cannot run it */
  MILLRACE_NOT_FOUND = -4,     /* a file, model or name does not exist */
  MILLRACE_IO = -5,            /* a system call failed */
  MILLRACE_NETWORK = -6,       /* fetching failed */
  MILLRACE_OUT_OF_MEMORY = -7, /* the model or a buffer does not fit */
  MILLRACE_CANCELLED = -8,     /* the progress function asked to stop */
  MILLRACE_BUSY = -9,          /* too many requests wait */
  MILLRACE_INTERNAL = -10      /* a bug of the library */
} millrace_status;

typedef struct millrace_model millrace_model;
typedef struct millrace_request millrace_request;
typedef struct millrace_server millrace_server;

MILLRACE_API int32_t millrace_api_version(void);   /* of the library; this header's is MILLRACE_API_VERSION */
MILLRACE_API const char* millrace_version(void);   /* "0.1.0" */
MILLRACE_API const char* millrace_error(void);     /* of this thread's last failed call; never NULL */
MILLRACE_API void millrace_set_verbosity(int32_t); /* log on stderr: 0 warnings, 1 decisions, 2 everything */

/* Models ---------------------------------------------------------------------------------------------------------- */

/* `total` is 0 while the model is fetched. A result other than 0 stops loading with MILLRACE_CANCELLED. */
typedef int32_t millrace_progress(void* user, int64_t done_bytes, int64_t total_bytes);

/* A low-rank adapter: a PEFT folder or a GGUF file, and the name by which requests choose it. */
typedef struct millrace_lora {
  const char* name; /* NULL: the name of the file or folder */
  const char* path;
} millrace_lora;

typedef struct millrace_model_options {
  size_t size;
  const char* device;          /* "cpu", "cuda", "cuda:N"; NULL or "auto": the first GPU if usable, else the CPU */
  const char* kv_type;         /* "f32", "f16", "bf16", "q8_0", "fp8"; NULL: f16, on a GPU the working type */
  const char* chat_template;   /* Jinja; NULL: the model's own */
  int32_t threads;             /* 0: one per usable core */
  int32_t exact;               /* f32 activations, KV cache and arithmetic */
  int64_t context;             /* positions per sequence; 0: the model's, or what memory allows */
  int32_t sequences;           /* run at the same time, at most; further ones wait */
  int32_t no_prefix_cache;     /* compute every prompt from its beginning */
  int64_t kv_tokens;           /* positions of the KV cache for all sequences together, at least one context */
  int32_t batch_invariant;     /* results do not depend on other running requests: slower */
  millrace_progress* progress; /* called on the loading thread; NULL: none */
  void* progress_user;
  /* Since version 2. The source of tokens that a step verifies together: "lookup" (repetitions of the text), "mtp" (the
   * model's own heads), "auto" (mtp if the model has such heads, else lookup), "none", a smaller model with the same
   * vocabulary, or an EAGLE-3 folder. The text stays the same. NULL: lookup. */
  const char* draft;
  /* Since version 3. Adapters that are loaded with the model. */
  const millrace_lora* loras;
  size_t lora_count;
  int32_t load_loras; /* more may follow by millrace_lora_load; the plan of a model without any has no room for them */
} millrace_model_options;

static inline void millrace_model_options_init(millrace_model_options* o) {
  memset(o, 0, sizeof *o);
  o->size = sizeof *o;
  o->sequences = 32;
  o->kv_tokens = 32768;
}

/* `model`: a .gguf file, a Hugging Face folder, a name from `millrace models`, which is downloaded once, or
 * "synthetic:SHAPE". `options` may be NULL. A model may be used by several threads. */
MILLRACE_API millrace_status millrace_model_load(const char* model, const millrace_model_options* options,
                                                 millrace_model** out);
/* Requests of the model stay valid and end as cancelled. NULL is ignored, here and below. */
MILLRACE_API void millrace_model_free(millrace_model* model);

typedef struct millrace_model_info {
  size_t size;
  int32_t vocabulary; /* columns of the logits */
  int32_t hidden;     /* length of a hidden state, or of the vectors of an embedding model */
  int32_t context;
  int32_t has_chat_template;
  int32_t bos, eos; /* tokens; -1: none */
} millrace_model_info;

/* Set info->size first. */
MILLRACE_API millrace_status millrace_model_describe(const millrace_model* model, millrace_model_info* info);

/* Tokens and text. The functions write at most `room` elements and set `count` to the whole number, so that a second
 * call can bring enough room. millrace_detokenize and millrace_render_chat count bytes, without a final NUL. */
MILLRACE_API millrace_status millrace_tokenize(const millrace_model* model, const char* text, size_t bytes,
                                               int32_t add_special, int32_t* tokens, size_t room, size_t* count);
MILLRACE_API millrace_status millrace_detokenize(const millrace_model* model, const int32_t* tokens, size_t token_count,
                                                 int32_t skip_special, char* text, size_t room, size_t* count);
/* The prompt that the chat template makes of a request's messages and fields (see below). */
MILLRACE_API millrace_status millrace_render_chat(const millrace_model* model, const char* messages, const char* fields,
                                                  char* text, size_t room, size_t* count);

/* Requests -------------------------------------------------------------------------------------------------------- */

typedef struct millrace_request_options {
  size_t size;
  /* The prompt: one of these. */
  const char* prompt;    /* text, continued as it is */
  const int32_t* tokens; /* the same as tokens */
  size_t token_count;
  const char* messages; /* JSON array of OpenAI's chat messages, for the model's chat template */

  int32_t max_tokens; /* 0: until the model ends its answer or the context is full */
  int32_t top_k;      /* INT32_MIN: the model's default; 0: all */
  float temperature;  /* NAN: the model's default; 0: always the likeliest token */
  float top_p;        /* NAN: the model's default */
  int64_t seed;       /* the same seed gives the same text; negative: drawn at random */
  /* Further fields of POST /v1/chat/completions (with `messages`) or /v1/completions, as a JSON object: stop, n, min_p,
   * logprobs, tools, response_format, structured_outputs, ... NULL: none. They take precedence. */
  const char* fields;

  int32_t whole; /* not a stream: wakes the reader at the end only, which costs no computing thread its core */
  /* Called on the engine's thread when millrace_next would return: it must not block or call the library. NULL: none.
   */
  void (*on_ready)(void* user);
  void* on_ready_user;
  /* Since version 3. The adapter of this name; NULL or "": none. A request keeps its adapter until it ends. */
  const char* lora;
} millrace_request_options;

static inline void millrace_request_options_init(millrace_request_options* o) {
  memset(o, 0, sizeof *o);
  o->size = sizeof *o;
  o->top_k = INT32_MIN;
  o->temperature = o->top_p = NAN;
  o->seed = -1;
}

/* Queues a request; any number may run at once. */
MILLRACE_API millrace_status millrace_submit(millrace_model* model, const millrace_request_options* options,
                                             millrace_request** out);

typedef enum millrace_finish {
  MILLRACE_RUNNING = 0,
  MILLRACE_STOP = 1,   /* an end token or a stop string, or the end of a grammar */
  MILLRACE_LENGTH = 2, /* max_tokens, or the context is full */
  MILLRACE_TOOL_CALLS = 3,
  MILLRACE_STOPPED = 4 /* cancelled */
} millrace_finish;

/* The next part of one choice. Pointers are valid until the next call for this request. */
typedef struct millrace_delta {
  size_t size;
  int32_t choice;
  millrace_finish finish; /* of the choice; each choice ends once */
  const char* text;       /* whole characters, NUL-terminated; may be empty */
  size_t text_bytes;
  const char* reasoning; /* as text; of models that reason before they answer */
  size_t reasoning_bytes;
  const char*
      tool_calls; /* JSON array of {"index", "id", "function": {"name", "arguments"}}, as OpenAI streams them; NULL */
  const int32_t* tokens; /* generated, including an end token */
  size_t token_count;
  const float* logprobs; /* one per token; NULL unless requested by the field "logprobs" */
  size_t top_count;      /* alternatives per token: [token_count, top_count], padded with token -1 */
  const int32_t* top_tokens;
  const float* top_logprobs;
} millrace_delta;

/* Waits for the next part of any choice; set delta->size first. timeout_ms: negative waits without limit, 0 not at all.
 * One thread at a time per request. MILLRACE_END after the last part; an error ends the request. */
MILLRACE_API millrace_status millrace_next(millrace_request* request, int32_t timeout_ms, millrace_delta* delta);
MILLRACE_API void millrace_cancel(millrace_request* request); /* any thread, at any time before it is freed */
MILLRACE_API void millrace_request_free(millrace_request* request);

typedef struct millrace_usage {
  size_t size;
  int32_t prompt_tokens;
  int32_t cached_tokens; /* of these, found in the prefix cache */
  int32_t generated_tokens;
} millrace_usage;

MILLRACE_API millrace_status millrace_request_usage(const millrace_request* request, millrace_usage* usage);

/* Vectors --------------------------------------------------------------------------------------------------------- */

typedef enum millrace_vectors {
  MILLRACE_LOGITS = 0,         /* [token_count, vocabulary] */
  MILLRACE_HIDDEN_STATES = 1,  /* [token_count, hidden], after the final norm */
  MILLRACE_EMBEDDING_MEAN = 2, /* [hidden], of length 1 */
  MILLRACE_EMBEDDING_LAST = 3, /* [hidden], of the last token, of length 1 */
  MILLRACE_EMBEDDING = 4       /* pooled as the model's files say; a cross-encoder's scores */
} millrace_vectors;

/* Computes a prompt and writes floats to `out`, which has room for all. Blocks; many threads may call at once. */
MILLRACE_API millrace_status millrace_compute(millrace_model* model, millrace_vectors kind, const int32_t* tokens,
                                              size_t token_count, float* out);

/* Low-rank adapters (since version 3) ----------------------------------------------------------------------------- */

/* Loads an adapter between two steps, if the model was loaded with `loras` or `load_loras`. `name` may be NULL, as in
 * millrace_lora. `replace`: takes the place of one of this name, and running requests keep the old one; without it, a
 * name that is taken is an error. */
MILLRACE_API millrace_status millrace_lora_load(millrace_model* model, const char* name, const char* path,
                                                int32_t replace);
/* Later requests do not find the adapter. Its memory is free once the last request that uses it has ended. */
MILLRACE_API millrace_status millrace_lora_unload(millrace_model* model, const char* name);
/* The names of the loaded adapters, each with a final NUL; `room` and `count` as in millrace_detokenize. */
MILLRACE_API millrace_status millrace_lora_names(const millrace_model* model, char* names, size_t room, size_t* count);
/* millrace_compute with an adapter. */
MILLRACE_API millrace_status millrace_lora_compute(millrace_model* model, const char* name, millrace_vectors kind,
                                                   const int32_t* tokens, size_t token_count, float* out);

/* Server ---------------------------------------------------------------------------------------------------------- */

typedef struct millrace_server_options {
  size_t size;
  const char* host;     /* NULL: 127.0.0.1 */
  int32_t port;         /* 0: any that is free */
  const char* name;     /* of the model, for clients; NULL: its file or catalogue name */
  const char* api_keys; /* lines of KEY or NAME KEY; NULL: none is needed */
} millrace_server_options;

static inline void millrace_server_options_init(millrace_server_options* o) {
  memset(o, 0, sizeof *o);
  o->size = sizeof *o;
}

/* The server of `millrace serve` in this process, with a model of its own. Returns once the model is loaded. */
MILLRACE_API millrace_status millrace_server_start(const char* model, const millrace_model_options* model_options,
                                                   const millrace_server_options* options, millrace_server** out);
MILLRACE_API int32_t millrace_server_port(const millrace_server* server);
/* Running requests may take `drain_ms` to finish. */
MILLRACE_API void millrace_server_stop(millrace_server* server, int32_t drain_ms);

#ifdef __cplusplus
}
#endif

#endif
