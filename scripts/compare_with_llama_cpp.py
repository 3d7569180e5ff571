#!/usr/bin/env python3
"""Quantizes a model to every type with millrace, and checks that llama.cpp reads the results and computes the same perplexity.

    scripts/compare_with_llama_cpp.py --llama-perplexity BUILD/bin/llama-perplexity MODEL.gguf TEXT

Run by hand: it needs a build of llama.cpp. Ends with a table, and with status 1 if a type differs by more than --tolerance.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
TYPES = ["F16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"]


def theirs(program, model, text, chunks, threads):
    done = subprocess.run([program, "-m", model, "-f", text, "-c", "512", "--chunks", str(chunks), "-t", str(threads)],
                          capture_output=True, text=True)
    found = re.search(r"Final estimate: PPL = ([0-9.]+)", done.stdout + done.stderr)
    if found is None:
        sys.exit(f"llama.cpp does not read {model}:\n{(done.stdout + done.stderr)[-2000:]}")
    return float(found.group(1))


def ours(program, model, text, chunks, threads):
    done = subprocess.run([program, "perplexity", "-m", model, "-f", text, "--ctx", "512", "--chunks", str(chunks), "-t", str(threads), "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["perplexity"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--llama-perplexity", required=True)
    parser.add_argument("--millrace", default=ROOT / "build" / "release" / "millrace")
    parser.add_argument("--chunks", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=0.015, help="of the perplexity")
    options = parser.parse_args()

    worst = 0
    print(f"{'type':6} {'millrace':>10} {'llama.cpp':>10} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in TYPES:
            quantized = pathlib.Path(folder) / f"{kind}.gguf"
            subprocess.run([options.millrace, "quantize", options.model, quantized, "--type", kind], check=True, stdout=subprocess.DEVNULL)
            a = ours(options.millrace, quantized, options.text, options.chunks, options.threads)
            b = theirs(options.llama_perplexity, quantized, options.text, options.chunks, options.threads)
            quantized.unlink()
            worst = max(worst, abs(a / b - 1))
            print(f"{kind:6} {a:10.4f} {b:10.4f} {a / b:7.4f}", flush=True)
    sys.exit(worst > options.tolerance)


if __name__ == "__main__":
    main()
