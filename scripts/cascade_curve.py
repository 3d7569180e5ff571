#!/usr/bin/env python3
"""Cost and quality of a cascade against random routing, over questions with known answers.

    scripts/cascade_curve.py                              # build/cuda or build/release, some minutes on two cores
    scripts/cascade_curve.py --small A --large B --threads 1 --runs FILE.json

Both models answer every question once, greedily, with log-probabilities; the answers go to the file of --runs, and a file that
exists is read instead. The curve over all thresholds follows from them without further answers. The table goes to stdout.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
ASK = "Answer with the result only, in a few words. {}"
MOST_TOKENS = 24

# A question, and the expression that its answer contains.
QUESTIONS = [
    ("What is 7 + 5?", r"\b12\b"), ("What is 9 + 14?", r"\b23\b"), ("What is 30 - 12?", r"\b18\b"),
    ("What is 100 - 37?", r"\b63\b"), ("What is 6 times 7?", r"\b42\b"), ("What is 8 times 9?", r"\b72\b"),
    ("What is 12 times 11?", r"\b132\b"), ("What is 15 times 6?", r"\b90\b"), ("What is 81 divided by 9?", r"\b(9|nine)\b"),
    ("What is 144 divided by 12?", r"\b(12|twelve)\b"), ("What is half of 50?", r"\b25\b"), ("What is 10 percent of 250?", r"\b25\b"),
    ("What is 2 to the power of 8?", r"\b256\b"), ("What is the square root of 64?", r"\b(8|eight)\b"),
    ("What is 25 + 48?", r"\b73\b"), ("What is 17 + 26 + 9?", r"\b52\b"), ("What is 1000 - 1?", r"\b999\b"),
    ("What is 3 times 3 times 3?", r"\b27\b"), ("How many minutes are in two hours?", r"\b120\b"),
    ("How many days are in a week?", r"\b(7|seven)\b"), ("How many legs do three spiders have in total?", r"\b24\b"),
    ("A pen costs 3 dollars. What do 7 pens cost?", r"\b21\b"), ("How many sides does a hexagon have?", r"\b(6|six)\b"),
    ("Which number is larger, 19 or 91?", r"\b91\b"), ("What is the next number: 2, 4, 8, 16?", r"\b32\b"),
    ("What is the capital of France?", r"paris"), ("What is the capital of Japan?", r"tokyo"),
    ("What is the capital of Italy?", r"rome"), ("What is the capital of Germany?", r"berlin"),
    ("What is the capital of Spain?", r"madrid"), ("What is the capital of Egypt?", r"cairo"),
    ("What is the capital of Canada?", r"ottawa"), ("What is the capital of Australia?", r"canberra"),
    ("What is the capital of Norway?", r"oslo"), ("What is the capital of Portugal?", r"lisbon"),
    ("What is the capital of Kenya?", r"nairobi"), ("What is the capital of Peru?", r"lima"),
    ("What is the capital of Hungary?", r"budapest"), ("What is the capital of Turkey?", r"ankara"),
    ("What is the capital of Mongolia?", r"ula+nba+tar"), ("What is the capital of Brazil?", r"bras[ií]lia"),
    ("Which planet is closest to the sun?", r"mercury"), ("Which planet is the largest in the solar system?", r"jupiter"),
    ("What is the chemical symbol of gold?", r"\bau\b"), ("What is the chemical symbol of sodium?", r"\bna\b"),
    ("What is the chemical formula of water?", r"h2o|h₂o"), ("Which gas do plants take from the air?", r"carbon dioxide|co2|co₂"),
    ("Which is the largest ocean?", r"pacific"), ("Who wrote Romeo and Juliet?", r"shakespeare"),
    ("Who painted the Mona Lisa?", r"leonardo|da vinci"), ("In which year did the Second World War end?", r"1945"),
    ("Who was the first president of the United States?", r"washington"), ("On which continent is Egypt?", r"africa"),
    ("What is the opposite of hot?", r"cold"), ("What is the plural of mouse, the animal?", r"\bmice\b"),
    ("What is the past tense of go?", r"\bwent\b"), ("What is the Spanish word for water?", r"agua"),
    ("What is the German word for dog?", r"hund"), ("What is the French word for bread?", r"\bpain\b"),
    ("What does len('hello') return in Python?", r"\b(5|five)\b"), ("What does 7 // 2 give in Python?", r"\b3\b(?!\.5)"),
    ("What does 7 % 4 give in Python?", r"\b3\b"), ("What does 'abc'.upper() give in Python?", r"ABC"),
    ("What does sorted([3, 1, 2]) give in Python?", r"1,\s*2,\s*3"), ("What does list(range(3)) give in Python?", r"0,\s*1,\s*2"),
    ("Which keyword defines a function in Python?", r"\bdef\b"), ("Which keyword defines a class in Java?", r"\bclass\b"),
    ("Which HTTP status code means Not Found?", r"\b404\b"), ("Which SQL keyword removes rows from a table?", r"\bdelete\b"),
    ("Which git command records changes in the repository?", r"commit"), ("Which Linux command lists the files of a folder?", r"\bls\b"),
    ("What does CPU stand for?", r"central processing unit"), ("What does HTML stand for?", r"hyper\s?text mark"),
    ("How many bits are in a byte?", r"\b(8|eight)\b"), ("What is the binary number 101 in decimal?", r"\b(5|five)\b"),
    ("What is 255 in hexadecimal?", r"\b(0x)?ff\b"), ("Which port does HTTPS use by default?", r"\b443\b"),
    ("What is the time complexity of binary search?", r"log\s*\(?\s*n|logarithmic"),
    ("What type has the value 3.14 in Python?", r"float"), ("What does the bool expression not True give in Python?", r"\bfalse\b"),
]


def is_right(text, pattern):
    flags = 0 if pattern == "ABC" else re.IGNORECASE
    return re.search(pattern, text.replace("**", ""), flags) is not None


def ask(url, model, question):
    body = {"model": model, "messages": [{"role": "user", "content": ASK.format(question)}], "temperature": 0,
            "max_tokens": MOST_TOKENS, "logprobs": True}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        made = json.load(answer)
    choice, usage = made["choices"][0], made["usage"]
    rows = [row["logprob"] for row in choice["logprobs"]["content"]]
    return {"text": choice["message"]["content"], "mean": sum(rows) / len(rows) if rows else None,
            "tokens": usage["completion_tokens"], "ms": usage["ledger"]["compute_ms"]}


def run_models(args):
    """{model: [answer]}: one model after the other, so that each is loaded once."""
    command = [args.millrace, "serve", "-m", args.small, "-m", args.large, "--port", "0", "--threads", str(args.threads),
               "--served-model-name", args.small, "--served-model-name", args.large, "--load-seconds", "600", "--kv-tokens", "4096"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = re.search(r"at (http://\S+)/v1", server.stdout.readline())[1]
            return {model: [ask(url, model, question) for question, _ in QUESTIONS] for model in (args.small, args.large)}
        finally:
            server.terminate()


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def area(scores, good):
    """The probability that a right answer scores above a wrong one."""
    pairs = [(a > b) + (a == b) / 2 for a, g in zip(scores, good) if g for b, h in zip(scores, good) if not h]
    return mean(pairs) if pairs else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    built = next((p for p in (ROOT / "build" / b / "millrace" for b in ("cuda", "release")) if p.exists()), "millrace")
    parser.add_argument("--millrace", default=os.environ.get("MILLRACE", str(built)))
    parser.add_argument("--small", default="smollm2-135m-instruct")
    parser.add_argument("--large", default="qwen2.5-coder-1.5b-instruct")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "build" / "cascade-runs.json")
    args = parser.parse_args()
    if not args.runs.exists():
        args.runs.parent.mkdir(parents=True, exist_ok=True)
        args.runs.write_text(json.dumps(run_models(args), indent=1))
    runs = json.loads(args.runs.read_text())
    small, large = runs[args.small], runs[args.large]
    patterns = [pattern for _, pattern in QUESTIONS]
    right = [[is_right(a["text"], p) for a, p in zip(answers, patterns)] for answers in (small, large)]
    scores = [-1e9 if a["mean"] is None else a["mean"] for a in small]
    order = sorted(range(len(scores)), key=scores.__getitem__)  # the least certain answer first
    count, costs = len(order), [mean(a["ms"] for a in answers) for answers in (small, large)]

    def row(share):
        escalated = set(order[:round(share * count)])
        part = len(escalated) / count
        by_score = mean(right[i in escalated][i] for i in range(count))
        by_chance = (1 - part) * mean(right[0]) + part * mean(right[1])
        threshold = "-inf" if not escalated else "0" if len(escalated) == count else \
            f"{(scores[order[len(escalated) - 1]] + scores[order[len(escalated)]]) / 2:.3f}"
        cascade_ms = costs[0] + sum(large[i]["ms"] for i in escalated) / count
        chance_ms = (1 - part) * costs[0] + part * costs[1]
        return f"| {part:.0%} | {threshold} | {by_score:.1%} | {by_chance:.1%} | {cascade_ms:.0f} | {chance_ms:.0f} |"

    print(f"{count} questions. {args.small}: {mean(right[0]):.1%} right, {mean(a['tokens'] for a in small):.1f} tokens and "
          f"{costs[0]:.0f} ms an answer. {args.large}: {mean(right[1]):.1%}, {mean(a['tokens'] for a in large):.1f} tokens, {costs[1]:.0f} ms.")
    print(f"A right answer of the small model scores above a wrong one with probability {area(scores, right[0]):.2f}.")
    print(f"The large model is right where the small one is wrong in {mean(b and not a for a, b in zip(*right)):.1%}, "
          f"the other way round in {mean(a and not b for a, b in zip(*right)):.1%}.\n")
    print("| to the large model | threshold | right, cascade | right, random routing | ms, cascade | ms, random routing |")
    print("|---:|---:|---:|---:|---:|---:|")
    for tenth in range(11):
        print(row(tenth / 10))


if __name__ == "__main__":
    main()
