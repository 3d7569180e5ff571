/* Streams the answer to one message, and cancels it after a number of tokens: chat MODEL MESSAGES_JSON [TOKENS] */
#include <millrace/c_api.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(void) {
  fprintf(stderr, "%s\n", millrace_error());
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 3) return fprintf(stderr, "usage: chat MODEL MESSAGES_JSON [TOKENS]\n"), 2;
  millrace_model* model = NULL;
  if (millrace_model_load(argv[1], NULL, &model) != MILLRACE_OK) return failed();

  millrace_request_options options;
  millrace_request_options_init(&options);
  options.messages = argv[2];
  options.temperature = 0;
  millrace_request* request = NULL;
  if (millrace_submit(model, &options, &request) != MILLRACE_OK) return millrace_model_free(model), failed();

  const size_t most = argc > 3 ? strtoul(argv[3], NULL, 10) : 256;
  size_t tokens = 0;
  millrace_delta delta = {.size = sizeof delta};
  millrace_status status;
  while ((status = millrace_next(request, -1, &delta)) == MILLRACE_OK) {
    fwrite(delta.text, 1, delta.text_bytes, stdout);
    fflush(stdout);
    tokens += delta.token_count;
    if (tokens >= most) millrace_cancel(request);
    if (delta.finish == MILLRACE_STOPPED) printf(" [cancelled]");
  }
  puts("");
  const int result = status == MILLRACE_END ? 0 : failed();
  millrace_request_free(request);
  millrace_model_free(model);
  return result;
}
