"""`cmake --install` installs what a C++ program needs: the binary, the library and one header."""

import subprocess

from conftest import BUILD

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
    for (const int token : generated.tokens) std::printf("%d ", token);
    return 0;
  } catch (const std::runtime_error& error) {
    std::puts(error.what());
    return 1;
  }
}
"""


def test_a_program_builds_against_the_installed_library(millrace, tiny, tmp_path):
    subprocess.run(["cmake", "--install", BUILD, "--prefix", tmp_path / "prefix"], check=True, capture_output=True)
    (tmp_path / "program.cpp").write_text(PROGRAM)
    library = next((tmp_path / "prefix" / "lib").rglob("libmillrace.so")).parent
    subprocess.run(["c++", "-std=c++20", "program.cpp", f"-I{tmp_path}/prefix/include", f"-L{library}", f"-Wl,-rpath,{library}", "-lmillrace",
                    "-o", "program"], cwd=tmp_path, check=True)

    done = subprocess.run([tmp_path / "program", tiny], capture_output=True, text=True, env=millrace.env, timeout=60)
    ours = millrace.json("run", "-m", tiny, "--exact", "--raw", "--temp", 0, "-n", 8, "hello")
    assert done.returncode == 0, done.stdout
    assert [int(token) for token in done.stdout.split()] == ours["tokens"]

    absent = subprocess.run([tmp_path / "program", tmp_path / "absent.gguf"], capture_output=True, text=True, env=millrace.env, timeout=60)
    assert absent.returncode == 1 and "absent.gguf" in absent.stdout
    installed = subprocess.run([tmp_path / "prefix" / "bin" / "millrace", "--version"], capture_output=True, text=True)
    assert installed.returncode == 0 and installed.stdout.strip()
