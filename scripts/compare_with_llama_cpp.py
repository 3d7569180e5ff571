#!/usr/bin/env python3
"""Quantizes a model to every type with millrace and compares the predictions of both programs on the same files.

    scripts/compare_with_llama_cpp.py MODEL.gguf [TEXT] [--types Q4_0,Q8_0] [--kl none]

For each type: the perplexity of millrace, of its --exact and of llama.cpp, and for the types of --kl the mean KL divergence of both from
--exact, over the second half of each window of 512 tokens. The first run builds llama.cpp (scripts/llama_cpp.py); --peer takes a llama_peer
that is there already. Status 1 if llama.cpp refuses a file or a perplexity differs by more than --tolerance.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

import llama_cpp

TYPES = ["as it is", "F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"]
WINDOW = 512


def run(command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def log_probabilities(logits):
    logits = logits.astype(numpy.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))


class Comparison:
    def __init__(self, options, peer, scratch):
        self.options, self.peer, self.scratch = options, peer, scratch

    def windows(self, model):
        tokens = json.loads(run([self.options.millrace, "tokenize", "-m", model, "-f", self.options.text, "--json"]))["ids"]
        count = min(self.options.chunks, len(tokens) // WINDOW)
        return [tokens[i * WINDOW:(i + 1) * WINDOW] for i in range(count)]

    def ours(self, model, *more):
        done = run([self.options.millrace, "perplexity", "-m", model, "-f", self.options.text, "--ctx", WINDOW, "--chunks", self.options.chunks,
                    "-t", self.options.threads, "--device", "cpu", "--json", *more])
        return json.loads(done)

    def theirs(self, model, windows):
        """Log-probabilities of the second half of each window."""
        tokens, out = self.scratch / "tokens", self.scratch / "logits"
        tokens.write_text(" ".join(str(token) for window in windows for token in window))
        done = subprocess.run([self.peer, "logits", model, str(self.options.threads), str(WINDOW), "default", tokens, out], capture_output=True,
                              text=True)
        if done.returncode != 0:
            sys.exit(f"llama.cpp does not read {model}:\n{done.stderr[-2000:]}")
        logits = numpy.fromfile(out, numpy.float32).reshape(len(windows), WINDOW, -1)
        return [log_probabilities(window[WINDOW // 2:]) for window in logits]

    def exact(self, model, window):
        done = run([self.options.millrace, "logits", "-m", model, "--exact", "--device", "cpu", "--json", "-t", self.options.threads, "--tokens",
                    ",".join(map(str, window))])
        return log_probabilities(numpy.array(json.loads(done)["logits"][WINDOW // 2:], numpy.float32))


def perplexity(halves, windows):
    chosen = [half[numpy.arange(WINDOW // 2 - 1), window[WINDOW // 2 + 1:]] for half, window in zip(halves, windows)]
    return float(numpy.exp(-numpy.concatenate(chosen).mean()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", nargs="?", type=pathlib.Path, default=llama_cpp.ROOT / "tests" / "data" / "text" / "license.txt")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--kl", default="as it is,Q8_0,Q4_0,Q4_K", help="types whose divergence is measured, too")
    parser.add_argument("--peer", type=pathlib.Path)
    parser.add_argument("--millrace", default=llama_cpp.ROOT / "build" / "release" / "millrace")
    parser.add_argument("--chunks", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=0.015, help="of the perplexity")
    options = parser.parse_args()
    peer = options.peer or llama_cpp.build() / "llama_peer"

    worst = 0
    print("| type | --exact | millrace | llama.cpp | KL, millrace | KL, llama.cpp |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(options, peer, pathlib.Path(folder))
        for kind in options.types.split(","):
            quantized = options.model
            if kind != "as it is":
                quantized = pathlib.Path(folder) / f"{kind}.gguf"
                run([options.millrace, "quantize", options.model, quantized, "--type", kind])
            windows = comparison.windows(quantized)
            halves = comparison.theirs(quantized, windows)
            fast, exact, theirs = comparison.ours(quantized, *(["--kl"] if kind in options.kl.split(",") else [])), \
                comparison.ours(quantized, "--exact"), perplexity(halves, windows)
            divergences = ["", ""]
            if "kl" in fast:
                sums = []
                for window, q in zip(windows, halves):
                    p = comparison.exact(quantized, window)
                    sums.append((numpy.exp(p) * (p - q)).sum(axis=1).mean())
                divergences = [f"{fast['kl']['mean']:.5f}", f"{numpy.mean(sums):.5f}"]
            worst = max(worst, abs(fast["perplexity"] / theirs - 1))
            if quantized != options.model:
                quantized.unlink()
            print(f"| {kind} | {exact['perplexity']:.3f} | {fast['perplexity']:.3f} | {theirs:.3f} | {' | '.join(divergences)} |", flush=True)
    sys.exit(worst > options.tolerance)


if __name__ == "__main__":
    main()
