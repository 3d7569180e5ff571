"""`cmake --install` installs what a program needs: the binary, the library, its headers, a CMake package and a pkg-config
file. The examples are built against the installed package."""

import os
import re
import subprocess

import pytest
from conftest import BUILD, GOLDENS, ROOT

PROGRAM = r"""
#include <cstdio>
#include <millrace/millrace.h>

int main(int argc, char** argv) {
  try {
    millrace::LanguageModel model(argv[1], {.threads = 1, .exact = true});
    const auto tokens = model.tokenize("hello");
    if (model.detokenize(tokens).find("hello") == std::string::npos) return 3;
    std::string streamed;
    const auto generated = model.generate("hello", {.max_tokens = 8, .temperature = 0.f, .chat = false},
                                          [&](std::string_view piece) { streamed += piece; });
    if (streamed != generated.text) return 4;
    if (millrace_api_version() != MILLRACE_API_VERSION) return 5;
    for (const int token : generated.tokens) std::printf("%d ", token);
    return 0;
  } catch (const std::runtime_error& error) {
    std::puts(error.what());
    return 1;
  }
}
"""

# Arguments: a model, an adapter, another one. Prints greedy tokens: without an adapter, with the first, with the second.
LORAS = r"""
#include <cstdio>
#include <millrace/millrace.h>

int main(int, char** argv) {
  try {
    millrace::LanguageModel model(argv[1], {.threads = 1, .exact = true, .loras = {{.path = argv[2], .name = "one"}}});
    const auto tokens = [&](const std::string& lora) {
      return model.generate("hello", {.max_tokens = 8, .temperature = 0.f, .chat = false, .lora = lora}).tokens;
    };
    const auto print = [&](const std::string& lora) {
      for (const int token : tokens(lora)) std::printf("%d ", token);
      std::printf("\n");
    };
    const auto fails = [&](const auto& call, const char* part) {
      try {
        call();
        return false;
      } catch (const millrace::Failure& e) {
        return e.status() == MILLRACE_USAGE && std::string(e.what()).find(part) != std::string::npos;
      }
    };
    using Names = std::vector<std::string>;
    if (model.loras() != Names{"one"}) return 2;
    if (!fails([&] { tokens("two"); }, "'two'")) return 3;
    if (!fails([&] { model.load_lora({.path = argv[3], .name = "one"}); }, "'one'")) return 4;
    if (!fails([&] { model.unload_lora("two"); }, "'two'")) return 5;
    model.load_lora({.path = argv[3]});  // by the name of the folder
    model.load_lora({.path = argv[3], .name = "two"});
    if (model.loras().size() != 3) return 6;
    print(""), print("one"), print("two");
    const auto second = tokens("two");
    model.load_lora({.path = argv[3], .name = "one"}, /*replace=*/true);
    if (tokens("one") != second) return 7;
    model.unload_lora("one");
    if (!fails([&] { tokens("one"); }, "'one'")) return 8;
    const auto ids = model.tokenize("hello");
    if (model.compute(MILLRACE_LOGITS, ids) == model.compute(MILLRACE_LOGITS, ids, "two")) return 9;
    millrace::LanguageModel plain(argv[1], {.threads = 1});
    if (!fails([&] { plain.load_lora({.path = argv[2]}); }, "without room for adapters")) return 10;
    millrace::LanguageModel later(argv[1], {.threads = 1, .exact = true, .load_loras = true});
    later.load_lora({.path = argv[3], .name = "two"});
    if (later.compute(MILLRACE_LOGITS, ids, "two") != model.compute(MILLRACE_LOGITS, ids, "two")) return 11;
    return 0;
  } catch (const std::runtime_error& error) {
    std::puts(error.what());
    return 1;
  }
}
"""

# Options and results of another size than the library's, as older and newer programs pass them.
VERSIONS = r"""
#include <millrace/c_api.h>
#include <stdio.h>

int main(int argc, char** argv) {
  millrace_model* model = NULL;
  millrace_model_options options;
  millrace_model_options_init(&options);
  options.sequences = 0;                                          /* behind the end of an older struct */
  options.size = offsetof(millrace_model_options, sequences);
  if (millrace_model_load(argv[1], &options, &model) != MILLRACE_OK) return 1;
  options.size = sizeof options + 8;
  millrace_model* none = model;
  if (millrace_model_load(argv[1], &options, &none) != MILLRACE_USAGE || none != NULL) return 2;
  options.size = 0;
  if (millrace_model_load(argv[1], &options, &none) != MILLRACE_USAGE || !*millrace_error()) return 3;

  millrace_model_info info = {.size = offsetof(millrace_model_info, context), .context = -7};
  if (millrace_model_describe(model, &info) != MILLRACE_OK || info.vocabulary <= 0 || info.context != -7) return 4;
  if (millrace_model_describe(NULL, &info) != MILLRACE_USAGE) return 5;

  millrace_request_options request;
  millrace_request_options_init(&request);
  millrace_request* started = NULL;
  if (millrace_submit(model, &request, &started) != MILLRACE_USAGE) return 6;  /* no prompt */
  request.prompt = "a";
  request.lora = "behind the end of a struct of version 2";
  request.size = offsetof(millrace_request_options, lora);
  request.fields = "{\"nonsense\": 1}";
  if (millrace_submit(model, &request, &started) != MILLRACE_USAGE || !strstr(millrace_error(), "nonsense")) return 7;
  request.fields = "{";
  if (millrace_submit(model, &request, &started) != MILLRACE_USAGE) return 8;
  const int32_t outside[] = {1 << 30};
  float room[1];
  if (millrace_compute(model, MILLRACE_LOGITS, outside, 1, room) != MILLRACE_USAGE) return 9;

  /* A request survives the handle of its model, and ends once it is cancelled. */
  request.fields = "{\"ignore_eos\": true}";
  if (millrace_submit(model, &request, &started) != MILLRACE_OK) return 10;
  millrace_model_free(model);
  millrace_delta delta = {.size = sizeof delta};
  if (millrace_next(started, -1, &delta) != MILLRACE_OK || delta.token_count == 0) return 11;
  millrace_cancel(started);
  millrace_status status;
  while ((status = millrace_next(started, -1, &delta)) == MILLRACE_OK && delta.finish == MILLRACE_RUNNING) {}
  if (status != MILLRACE_OK || (delta.finish != MILLRACE_STOPPED && delta.finish != MILLRACE_LENGTH)) return 12;
  if (millrace_next(started, -1, &delta) != MILLRACE_END) return 13;
  millrace_request_free(started);
  puts("good");
  return 0;
}
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    subprocess.run(["cmake", "--install", BUILD, "--prefix", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def library(prefix):
    return next((prefix / "lib").rglob("libmillrace.so")).parent


@pytest.fixture(scope="module")
def flags(library):
    config = {**os.environ, "PKG_CONFIG_PATH": str(library / "pkgconfig")}
    words = subprocess.run(["pkg-config", "--cflags", "--libs", "millrace"], env=config, check=True, capture_output=True, text=True).stdout.split()
    return [*words, f"-Wl,-rpath,{library}"]


@pytest.fixture(scope="module")
def examples(prefix, tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    for command in (["-S", ROOT / "examples", "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_C_FLAGS=-Werror -Wall"], ["--build", folder]):
        done = subprocess.run(["cmake", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


def run(millrace, *command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, env=millrace.env, timeout=120)


def test_a_program_builds_against_the_installed_library(millrace, tiny, prefix, flags, tmp_path):
    (tmp_path / "program.cpp").write_text(PROGRAM)
    subprocess.run(["c++", "-std=c++20", "program.cpp", *flags, "-o", "program"], cwd=tmp_path, check=True)

    done = run(millrace, tmp_path / "program", tiny)
    ours = millrace.json("run", "-m", tiny, "--exact", "--raw", "--temp", 0, "-n", 8, "hello")
    assert done.returncode == 0, done.stdout
    assert [int(token) for token in done.stdout.split()] == ours["tokens"]

    absent = run(millrace, tmp_path / "program", tmp_path / "absent.gguf")
    assert absent.returncode == 1 and "absent.gguf" in absent.stdout
    installed = run(millrace, prefix / "bin" / "millrace", "--version")
    assert installed.returncode == 0 and installed.stdout.strip()


def test_a_program_chooses_adapters(millrace, flags, tmp_path):
    (tmp_path / "loras.cpp").write_text(LORAS)
    subprocess.run(["c++", "-std=c++20", "loras.cpp", *flags, "-o", "loras"], cwd=tmp_path, check=True)
    model, one, two = GOLDENS / "llama_gqa" / "model.gguf", ROOT / "tests/data/loras/llama", ROOT / "tests/data/loras/llama_patterns"
    done = run(millrace, tmp_path / "loras", model, one, two)
    assert done.returncode == 0, done.stdout
    for line, lora in zip(done.stdout.splitlines(), ([], ["--lora", one], ["--lora", two]), strict=True):
        ours = millrace.json("run", "-m", model, "--exact", "--raw", "--temp", 0, "-n", 8, *lora, "hello")
        assert [int(token) for token in line.split()] == ours["tokens"]


def test_structs_of_other_versions_and_wrong_arguments(millrace, tiny, flags, tmp_path):
    (tmp_path / "versions.c").write_text(VERSIONS)
    subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", "versions.c", *flags, "-lm", "-o", "versions"], cwd=tmp_path, check=True)
    done = run(millrace, tmp_path / "versions", tiny)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


def test_the_library_exports_its_interface_only(library):
    symbols = subprocess.run(["nm", "-D", "--defined-only", library / "libmillrace.so"], check=True, capture_output=True, text=True).stdout
    names = {line.split()[-1].split("@")[0] for line in symbols.splitlines()} - {"MILLRACE_1"}
    declared = set(re.findall(r"^MILLRACE_API [^;(]*?\b(millrace_\w+)\(", (ROOT / "include/millrace/c_api.h").read_text(), re.M))
    assert names == declared


def test_examples_stream_and_cancel(millrace, tiny_chat, examples):
    done = run(millrace, examples / "chat", tiny_chat, '[{"role": "user", "content": "hello"}]', "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[cancelled]\n")
    wrong = run(millrace, examples / "chat", tiny_chat, '[{"role": "user"')
    assert wrong.returncode == 1 and len(wrong.stderr.splitlines()) == 1


def test_examples_run_several_sequences_at_once(millrace, tiny, examples):
    prompts = ["hello", "one two", "hello"]
    done = run(millrace, examples / "many", tiny, *prompts)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split("\n--\n")
    assert len(answers) == 4 and answers[0] == answers[2]
    alone = run(millrace, examples / "generate", tiny, "hello")
    assert alone.returncode == 0 and "32 tokens" in alone.stdout


def test_examples_compute_vectors(millrace, tiny, examples):
    done = run(millrace, examples / "vectors", tiny, "hello", "hello")
    assert done.returncode == 0, done.stderr
    rows, cosine = done.stdout.splitlines()
    ids = millrace.json("tokenize", "-m", tiny, "hello")["ids"]
    logits = millrace.json("logits", "-m", tiny, "--tokens", ",".join(map(str, ids)))["logits"]
    assert [int(word) for word in rows.split()] == [row.index(max(row)) for row in logits]
    assert abs(float(cosine.split()[1]) - 1) < 1e-4
