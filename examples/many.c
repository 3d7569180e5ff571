/* Runs several prompts at once and prints each answer when it is complete: many MODEL PROMPT... */
#include <millrace/c_api.h>
#include <stdio.h>

enum { kMost = 64 };

static int print_answer(const char* prompt, millrace_request* request) {
  millrace_delta delta = {.size = sizeof delta};
  millrace_status status;
  printf("%s", prompt);
  while ((status = millrace_next(request, -1, &delta)) == MILLRACE_OK) fwrite(delta.text, 1, delta.text_bytes, stdout);
  puts("\n--");
  if (status != MILLRACE_END) fprintf(stderr, "%s\n", millrace_error());
  return status == MILLRACE_END ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc < 3 || argc - 2 > kMost) return fprintf(stderr, "usage: many MODEL PROMPT...\n"), 2;
  millrace_model_options model_options;
  millrace_model_options_init(&model_options);
  model_options.sequences = argc - 2;
  millrace_model* model = NULL;
  if (millrace_model_load(argv[1], &model_options, &model) != MILLRACE_OK) {
    fprintf(stderr, "%s\n", millrace_error());
    return 1;
  }

  millrace_request* requests[kMost] = {NULL};
  int result = 0;
  for (int i = 2; i < argc && result == 0; ++i) {
    millrace_request_options options;
    millrace_request_options_init(&options);
    options.prompt = argv[i];
    options.max_tokens = 32;
    options.temperature = 0;
    options.whole = 1; /* wake up once per answer */
    if (millrace_submit(model, &options, &requests[i - 2]) != MILLRACE_OK) {
      fprintf(stderr, "%s\n", millrace_error());
      result = 1;
    }
  }
  for (int i = 2; i < argc; ++i) {
    if (result == 0) result = print_answer(argv[i], requests[i - 2]);
    millrace_request_free(requests[i - 2]);
  }
  millrace_model_free(model);
  return result;
}
