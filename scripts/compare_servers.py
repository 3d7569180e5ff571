#!/usr/bin/env python3
"""Puts millrace and llama.cpp's llama-server under the same load, in turns, and writes the results.

    scripts/compare_servers.py                       # downloads and builds llama-server once, then some minutes of load
    scripts/compare_servers.py --model M.gguf --threads 2 --rounds 3 --llama-server PATH

llama-server is built from the source archive of llama-cpp-python on PyPI, pinned below. The servers never run at the same time:
each round starts one, loads it and stops it, then the other. Medians over the rounds go to build/compare/results.json, and the table
and the plot of docs/serving.md are rewritten.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tarfile
import time
import urllib.parse
import urllib.request

import figures

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "compare"
PEER = "llama_cpp_python==0.3.36"

ROWS = [  # key in the results, name in the table, unit, whether more is better
    ("throughput", "8 streams, 256 words in, 64 tokens out", "tokens/s", True),
    ("itl_p99", "the same, p99 between tokens", "ms", False),
    ("ttft_p50", "the same, p50 to the first token", "ms", False),
    ("single", "one stream alone, decode", "tokens/s", True),
    ("prefix_first", "1k-token prefix, first request to its first token", "ms", False),
    ("prefix_second", "the same prefix again, up to 16 tokens behind it", "ms", False),
    ("long_before", "7 streams, p99 between tokens", "ms", False),
    ("long_during", "the same while a 4k-token prompt is computed", "ms", False),
    ("long_first", "that prompt, to its first token", "ms", False),
]


def run(*command, **more):
    subprocess.run([str(c) for c in command], check=True, **more)


def build_peer():
    """The path of llama-server; builds it if necessary."""
    built = WORK / "llama.cpp-build" / "bin" / "llama-server"
    if built.exists():
        return built
    WORK.mkdir(parents=True, exist_ok=True)
    name, version = PEER.split("==")
    archive = WORK / f"{name}-{version}.tar.gz"
    if not archive.exists():
        index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
        page_url = f"{index}/{name.replace('_', '-')}/"
        page = urllib.request.urlopen(page_url).read().decode()
        link = re.search(rf'href="([^"]*{re.escape(archive.name)}[^"]*)"', page)
        if not link:
            sys.exit(f"compare_servers: {page_url} does not list {archive.name}")
        print(f"fetching {archive.name}", file=sys.stderr)
        archive.write_bytes(urllib.request.urlopen(urllib.parse.urljoin(page_url, link[1])).read())
    with tarfile.open(archive) as tar:
        tar.extractall(WORK, filter="data")
    source = WORK / archive.name.removesuffix(".tar.gz") / "vendor" / "llama.cpp"
    print("building llama-server, which takes some minutes", file=sys.stderr)
    log = (WORK / "build.log").open("w")
    run("cmake", "-S", source, "-B", built.parent.parent, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF", stdout=log, stderr=log)
    run("ninja", "-C", built.parent.parent, "llama-server", stdout=log, stderr=log)
    return built


def digest(path):
    """Distinguishes the file from others of the same name."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A server that runs within a `with` block."""

    def __init__(self, command, health):
        self.port = free_port()
        self.command = [str(c) for c in command] + ["--host", "127.0.0.1", "--port", str(self.port)]
        self.url = f"http://127.0.0.1:{self.port}"
        self.health = self.url + health

    def __enter__(self):
        WORK.mkdir(parents=True, exist_ok=True)
        self.log = (WORK / "server.log").open("w")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if urllib.request.urlopen(self.health, timeout=2).status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"compare_servers: {' '.join(self.command)} did not start; see {WORK / 'server.log'}")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def load(binary, url, *options):
    done = subprocess.run([str(binary), "load", "--url", url, "--json", *map(str, options)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_servers: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    if report["failed"]:
        print(f"{report['failed']} requests failed: {report['problem']}", file=sys.stderr)
    return report


def gaps(report, begin, end):
    """Milliseconds between adjacent pieces of all answers, for gaps within a span of time."""
    found = []
    for request in report["each"]:
        times = [report["started"] + t for t in request["pieces"]]
        found += [1000 * (b - a) for a, b in zip(times, times[1:]) if a >= begin and b <= end]
    return found


def p99(values):
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def long_prompt(binary, url, seed, token_ms):
    """p99 between the tokens of 7 running streams: before a prompt of 4k tokens arrives, and until its first token."""
    tokens = 448
    streams = subprocess.Popen([str(binary), "load", "--url", url, "--json", "-c", "7", "--requests", "7", "--duration", "600", "--words", "64",
                                "-n", str(tokens), "--seed", str(seed)], stdout=subprocess.PIPE, text=True)
    time.sleep(1 + token_ms * tokens / 4 / 1000)
    prompt = load(binary, url, "-c", 1, "--requests", 1, "--words", 4066, "-n", 4, "--seed", seed + 1)
    report = json.loads(streams.communicate()[0])
    arrival = prompt["started"] + prompt["each"][0]["begin"]
    all_run = report["started"] + max(r["first"] for r in report["each"])
    first_ends = report["started"] + min(r["end"] for r in report["each"])
    before, during = gaps(report, all_run, arrival), gaps(report, arrival, min(first_ends, arrival + waits(prompt)[0] / 1000))
    return {"long_tokens": prompt["each"][0]["prompt_tokens"], "long_before": p99(before), "long_during": p99(during), "long_first": waits(prompt)[0]}


def waits(report):
    return [1000 * (r["first"] - r["begin"]) for r in report["each"]]


def alone(binary, url, seed, bench):
    """Tokens per second of one stream, alternating with `bench` if given."""
    turns = []
    for i in range(3):
        turn = {"bench": bench()} if bench else {}
        streams = load(binary, url, "-c", 1, "--requests", 2, "--duration", 600, "--words", 64, "-n", 96, "--seed", seed + i)
        turns.append({**turn, "single": 1000 / streams["tpot_ms"]["p50"]})
    return {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}


def measure(binary, url, seed, requests, bench):
    load(binary, url, "-c", 2, "--requests", 2, "--words", 32, "-n", 8)  # warm-up
    many = load(binary, url, "-c", 8, "--requests", requests, "--duration", 600, "--words", 256, "-n", 64, "--seed", seed)
    prefix = waits(load(binary, url, "-c", 1, "--requests", 2, "--duration", 600, "--prefix-words", 900, "--words", 4, "-n", 4, "--seed", seed + 1))
    return {**long_prompt(binary, url, seed + 2, many["itl_ms"]["p50"]), "throughput": many["tokens_per_second"], "itl_p99": many["itl_ms"]["p99"], "ttft_p50": many["ttft_ms"]["p50"],
            **alone(binary, url, seed, bench), "prefix_first": prefix[0], "prefix_second": prefix[1]}


def bench_decode(binary, model, threads):
    """Tokens per second of one stream without a server, at the depth of `alone`."""
    command = [str(binary), "bench", "-m", str(model), "-p", "0", "-n", "96", "-d", "96", "-b", "1", "--threads", str(threads), "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return max(r["tokens_per_second"] for r in found["results"])


def remarks(results):
    ours = results["millrace"]
    return (f"With millrace a shared prefix of 1k tokens takes {100 * ours['prefix_second'] / ours['prefix_first']:.1f} % of its first time, a 4k-token prompt "
            f"raises the p99 between tokens by {100 * (ours['long_during'] / ours['long_before'] - 1):.0f} %, and one stream decodes at "
            f"{100 * ours['single'] / ours['bench']:.0f} % of what `millrace bench` says ({ours['bench']:.1f} tokens/s).")


def table(results):
    lines = ["| | millrace | llama-server | millrace is |", "|---|---:|---:|---:|"]
    for key, name, unit, more in ROWS:
        ours, theirs = (results[s][key] for s in ("millrace", "llama-server"))
        factor = ours / theirs if more else theirs / ours
        lines.append(f"| {name} | {ours:.1f} {unit} | {theirs:.1f} {unit} | {factor:.2f}x |")
    return "\n".join(lines)


def plot(results):
    """A bar chart: one pair per row, the better one at full length."""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {40 + 54 * len(ROWS)}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="#fff"/>', '<text x="10" y="20" font-weight="bold">longer is better</text>']
    for i, (key, name, unit, more) in enumerate(ROWS):
        values = {s: results[s][key] for s in ("millrace", "llama-server")}
        goodness = {s: v if more else 1 / v for s, v in values.items()}
        y = 44 + 54 * i
        parts.append(f'<text x="10" y="{y}">{name}</text>')
        for j, (server, color) in enumerate((("millrace", "#0f6d7c"), ("llama-server", "#b9b2a6"))):
            width = 480 * goodness[server] / max(goodness.values())
            parts.append(f'<rect x="10" y="{y + 6 + 15 * j}" width="{width:.1f}" height="12" fill="{color}"/>')
            parts.append(f'<text x="{width + 16:.1f}" y="{y + 16 + 15 * j}">{server} {values[server]:.1f} {unit}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def origin():
    command = " ".join(["scripts/compare_servers.py", *sys.argv[1:]])
    return f"Measured {figures.today()} at commit {figures.commit()} with `{command}`; the peer is llama-server of {PEER}. Later changes to the code are not in these figures."


def write_docs(results, machine):
    (ROOT / "docs" / "serving.svg").write_text(plot(results))
    page = ROOT / "docs" / "serving.md"
    block = f"<!-- comparison -->\n{origin()}\n\n{machine}\n\n{table(results)}\n\n{remarks(results)}\n\n![The same as bars](serving.svg)\n<!-- /comparison -->"
    text = page.read_text()
    if "<!-- comparison -->" not in text:
        text += "\n## Beside llama.cpp's server\n\n`scripts/compare_servers.py` writes this section.\n\n<!-- comparison --><!-- /comparison -->\n"
    page.write_text(re.sub(r"<!-- comparison -->.*?<!-- /comparison -->", lambda _: block, text, flags=re.S))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a GGUF file; default: millrace's default model")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--more", action="store_true", help="the rounds of earlier runs, in build/compare/results.json, count too")
    parser.add_argument("--requests", type=int, default=16, help="of the 8 streams")
    parser.add_argument("--millrace", default=ROOT / "build" / "release" / "millrace")
    parser.add_argument("--llama-server", help="one that is built already")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/serving.md as it is")
    options = parser.parse_args()
    peer = options.llama_server or build_peer()
    model = options.model
    if not model:
        listed = json.loads(subprocess.run([options.millrace, "models", "--json"], check=True, capture_output=True, text=True).stdout)
        stored = [m["path"] for m in listed["cache"] if m["path"].endswith(".gguf")]
        if not stored:
            sys.exit("compare_servers: fetch the default model first (scripts/run), or give --model")
        model = stored[0]
    servers = {
        "millrace": Server([options.millrace, "serve", "-m", model, "--threads", options.threads, "--ctx", 8192], "/health/ready"),
        "llama-server": Server([peer, "-m", model, "-t", options.threads, "-np", 8, "-c", 8 * 8192, "--no-webui"], "/health"),
    }
    measured = {"millrace": digest(options.millrace), "llama-server": digest(peer), "model": digest(model), "threads": options.threads}
    samples = {name: [] for name in servers}
    if options.more:
        earlier = json.loads((WORK / "results.json").read_text())
        if earlier.get("of") != measured:
            sys.exit("compare_servers: --more would mix the rounds of other programs, models or threads; leave it out")
        samples = earlier["samples"]
    before = len(samples["millrace"])
    rounds = before + options.rounds
    for i in range(before, rounds):
        for name, server in servers.items():
            print(f"round {i + 1} of {rounds}: {name}", file=sys.stderr)
            with server:
                bench = (lambda: bench_decode(options.millrace, model, options.threads)) if name == "millrace" else None
                samples[name].append(measure(options.millrace, server.url, 100 * i, options.requests, bench))
    results = {name: {key: statistics.median(s[key] for s in runs) for key in runs[0]} for name, runs in samples.items()}
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "results.json").write_text(json.dumps({"of": measured, "median": results, "samples": samples}, indent=1))
    listed = subprocess.run(["lscpu"], capture_output=True, text=True).stdout if shutil.which("lscpu") else ""
    cpu = re.search(r"Model name\s*:\s*(.*)", listed)
    machine = f"{pathlib.Path(model).name}, {options.threads} threads{' of ' + cpu[1] if cpu else ''}, medians of {rounds} interleaved rounds."
    print(machine, table(results), remarks(results), sep="\n\n")
    if not options.no_docs:
        write_docs(results, machine)


if __name__ == "__main__":
    if not shutil.which("cmake"):
        sys.exit("compare_servers: needs cmake and ninja (scripts/install-deps)")
    main()
