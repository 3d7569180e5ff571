#!/usr/bin/env python3
"""Decode speed of a mixture that a GPU holds in part: millrace against llama.cpp, same file, same bytes on the card, in turns.

    scripts/compare_offload.py                          # qwen3-30b-a3b in Q4_0 with random weights, half of the experts on the host
    scripts/compare_offload.py MODEL.gguf --layers 24 --threads 16 --rounds 3
    scripts/compare_offload.py --model-dir /dev/shm --millrace PATH --peer FOLDER/llama_offload

llama.cpp keeps the experts of the first --layers layers on the host (-ngl 99 --n-cpu-moe LAYERS). It may keep them mapped, pinned or
repacked, with as many threads as millrace or half of them: a short run of each decides which. millrace gets the --gpu-memory that leaves
it no more bytes of weights on the card than llama.cpp reports or, with --same all, no more bytes of weights, KV cache and buffers
together. Steps of one token behind --depth tokens; every figure is the median of the rounds.

The first run builds llama.cpp for the GPU at hand (scripts/llama_cpp.py, which also makes FOLDER for a machine without network); --peer
takes a llama_offload that is there already.
"""

import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys

import llama_cpp

HOSTS = ("mapped", "pinned", "repacked")
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 2**20}


def run(command, seconds):
    """(stdout, stderr)"""
    command = list(map(str, command))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(command)}: not done after {seconds} s")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout, done.stderr


def progress(text):
    print(text, file=sys.stderr, flush=True)


class Model:
    """A mixture's sizes. Both programs keep the bits of quantized weights, so the file's sizes are those in memory."""

    def __init__(self, options):
        self.file = options.model or options.model_dir / f"{options.shape}-q4_0.gguf"
        if not self.file.exists():
            progress(f"writing {self.file}")
            run([options.millrace, "quantize", f"synthetic:{options.shape}:q4_0", self.file, "--type", "Q4_0"], 2 * options.timeout)
        tensors = json.loads(run([options.millrace, "inspect", self.file, "--device", "cpu", "--json"], options.timeout)[0])["tensors"]
        experts = [tensor for tensor in tensors if "_exps.weight" in tensor["name"]]
        if not experts:
            sys.exit(f"{self.file} has no experts")
        self.bytes = sum(tensor["bytes"] for tensor in tensors)
        self.layers = len({tensor["name"].split(".")[1] for tensor in experts})
        self.experts = self.layers * experts[0]["shape"][0]  # of all layers
        self.expert_bytes = sum(tensor["bytes"] for tensor in experts) / self.experts


class LlamaCpp:
    def __init__(self, options, model, layers):
        self.options, self.model, self.layers = options, model, layers
        self.host, self.threads = HOSTS[0], options.threads

    def run(self, host, threads, generate, rounds):
        """({threads: tokens/s}, what llama.cpp logs)"""
        out, log = run([self.options.peer, self.model.file, self.layers, host, self.options.depth, generate, rounds, *threads],
                       self.options.timeout)
        rates = {}
        for line in out.splitlines():
            count, rate = line.split()
            rates.setdefault(int(count), []).append(float(rate))
        return {count: statistics.median(list_of) for count, list_of in rates.items()}, log

    def choose(self):
        """Takes the fastest way to compute on the host."""
        best = 0
        for host in HOSTS:
            rates, log = self.run(host, sorted({self.options.threads, max(1, self.options.threads // 2)}), self.options.generate // 2, 1)
            for threads, rate in rates.items():
                progress(f"llama.cpp, experts {host}, {threads} threads: {rate:.1f} tokens/s")
                if rate > best:
                    best, self.host, self.threads = rate, host, threads
                    self.card, self.card_in_all = buffers(log, "model"), buffers(log, r"\w+")

    def rate(self):
        return self.run(self.host, [self.threads], self.options.generate, 1)[0][self.threads]


def buffers(log, kind):
    """Bytes on GPUs, from lines like "load_tensors:        CUDA0 model buffer size =  8892.91 MiB"."""
    return sum(float(size) * UNITS[unit] for size, unit in re.findall(rf"CUDA\d+ {kind} buffer size =\s*([\d.]+) (\w+)", log))


class Millrace:
    def __init__(self, options, model):
        self.options, self.model = options, model
        self.gpu_memory = 0

    def run(self, *more):
        """A chunk of a prompt as large as llama.cpp's leaves buffers of the same order. --draw: argmax may repeat a token."""
        options = self.options
        command = [options.millrace, "bench", "-m", self.model.file, "--device", options.device, "-t", options.threads, "-p", 0,
                   "-n", options.generate, "-d", options.depth, "-r", 1, "--chunk", 512, "--draw", "--json", "-v", *more]
        if self.gpu_memory > 0:
            command += ["--gpu-memory", self.gpu_memory]
        out, log = run(command, options.timeout)
        placed = re.findall(r"(\d+) of \d+ experts, in \d+ of \d+ layers", log)  # the last placement is the one that counts
        self.on_host = int(placed[-1]) if placed else 0
        self.card = self.model.bytes - self.on_host * self.model.expert_bytes
        total, unit = re.findall(r"memory plan: .* = ([\d.]+) (\w+) of", log)[-1]
        self.card_in_all = float(total) * UNITS[unit]
        return json.loads(out)["results"][0]["tokens_per_second"]

    def fit(self, weights):
        """Looks for the --gpu-memory with which no more than so many bytes of weights are on the card."""
        wanted = math.ceil((self.model.bytes - weights) / self.model.expert_bytes)
        self.gpu_memory = int(weights)
        for _ in range(4):
            self.run("--predict")
            progress(f"millrace --gpu-memory {self.gpu_memory}: {self.on_host} experts on the host, wanted {wanted}")
            if wanted <= self.on_host <= wanted + self.model.experts // 100:
                return
            self.gpu_memory += int((self.on_host - wanted) * self.model.expert_bytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=pathlib.Path)
    parser.add_argument("--model-dir", type=pathlib.Path, default=llama_cpp.PEERS / "models", help="where the random model is written")
    parser.add_argument("--shape", default="qwen3-30b-a3b", help="of the random model, as in synthetic:SHAPE")
    parser.add_argument("--layers", type=int, help="whose experts llama.cpp keeps on the host; default: half of all")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--same", choices=["weights", "all"], default="weights", help="bytes on the card")
    parser.add_argument("--timeout", type=int, default=90, help="seconds that one program may take")
    parser.add_argument("--millrace", type=pathlib.Path, default=llama_cpp.ROOT / "build" / "cuda" / "millrace")
    parser.add_argument("--peer", type=pathlib.Path)
    parser.add_argument("--device", default="cuda", help="cpu: a test of this script, in which both programs compute everything on the CPU")
    options = parser.parse_args()
    options.peer = options.peer or llama_cpp.build(cuda="native" if options.device == "cuda" else "") / "llama_offload"
    options.model_dir.mkdir(parents=True, exist_ok=True)

    model = Model(options)
    peer = LlamaCpp(options, model, options.layers or model.layers // 2)
    millrace = Millrace(options, model)
    peer.choose()
    if options.device == "cuda" and peer.card == 0:
        sys.exit("llama.cpp uses no GPU")
    if options.device == "cuda" and options.same == "weights":
        millrace.fit(peer.card)
    else:
        millrace.gpu_memory = int(peer.card_in_all)
    rates = []
    for i in range(options.rounds):
        rates.append((millrace.run(), peer.rate()))
        progress(f"round {i + 1}: millrace {rates[-1][0]:.1f}, llama.cpp {rates[-1][1]:.1f} tokens/s")
    ratio = statistics.median(a / b for a, b in rates)
    print(f"{model.file.name}, batch 1, depth {options.depth}, {options.generate} tokens, {options.rounds} rounds in turns\n")
    print("| program | weights on the card | with KV cache and buffers | on the host | threads | tokens/s | least .. most |")
    print("|---|---|---|---|---|---|---|")
    for which, name, program, on_host, threads in (
            (0, "millrace", millrace, f"{millrace.on_host} of {model.experts} experts", options.threads),
            (1, llama_cpp.PACKAGE, peer, f"experts of {peer.layers} of {model.layers} layers, {peer.host}", peer.threads)):
        samples = [pair[which] for pair in rates]
        print(f"| {name} | {program.card / 1e9:.2f} GB | {program.card_in_all / 1e9:.2f} GB | {on_host} | {threads} | "
              f"{statistics.median(samples):.1f} | {min(samples):.1f} .. {max(samples):.1f} |")
    print(f"\nRatio: {ratio:.2f}x")


if __name__ == "__main__":
    main()
