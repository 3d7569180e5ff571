#!/usr/bin/env python3
"""Where the time of a decode step goes: bench/cuda/step_times.py TRACE [STEPS]

TRACE is what kernel_trace.so wrote. The last STEPS steps count (8 unless told); a step ends with the kernel that finds the tokens. A
kernel's share is how far it moves the end of the step: its end less the latest end of the kernels before it. So shares add up to
the step, and a kernel that hides behind another costs nothing. `early` is how long before that end it began.
"""
import re
import statistics
import subprocess
import sys


def read(path):
    rows = []
    with open(path) as lines:
        for line in lines:
            begin, end, blocks, threads, registers, shared, name = line.rstrip("\n").split("\t")
            rows.append((int(begin), int(end), int(blocks), int(threads), int(registers), int(shared), name))
    return rows


def readable(names):
    try:
        out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        out = list(names)
    short = {}
    for name, text in zip(names, out):
        text = re.sub(r"^void ", "", text).replace("millrace::", "").replace("(anonymous namespace)::", "")
        text = text.replace("__nv_bfloat16", "bf16")
        depth, end = 0, len(text)
        for i, c in enumerate(text):
            depth += {"<": 1, ">": -1}.get(c, 0)
            if c == "(" and depth == 0:
                end = i
                break
        short[name] = text[:end][:70]
    return short


def main():
    rows = read(sys.argv[1])
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    ends = [i for i, row in enumerate(rows) if re.search("argmax|sample", row[6])]
    # A search in two kernels ends a step with its second.
    ends = [i for i in ends if i + 1 == len(rows) or not re.search("argmax|sample", rows[i + 1][6])]
    if len(ends) < steps + 1:
        sys.exit(f"{sys.argv[1]}: {len(ends)} steps are too few")
    names = readable(sorted({row[6] for row in rows}))
    table, order, gaps, totals = {}, [], [], []
    for first, last in zip(ends[-steps - 1:-1], ends[-steps:]):
        latest = max(row[1] for row in rows[max(0, first - 4):first + 1])
        gaps.append((rows[first + 1][0] - latest) / 1e3)
        totals.append((rows[last][1] - latest) / 1e3)
        for begin, end, blocks, threads, registers, shared, name in rows[first + 1:last + 1]:
            key = (names[name], blocks, threads, registers, shared)
            if key not in table:
                table[key] = []
                order.append(key)
            share = max(0, end - latest)
            table[key].append((share / 1e3, (latest - begin) / 1e3, (end - begin) / 1e3))
            latest = max(latest, end)
    print(f"{'share us':>9} {'each':>7} {'early':>7} {'length':>7} {'times':>6}  kernel [blocks x threads, registers, KB shared]")
    for key in sorted(order, key=lambda k: -sum(s for s, _, _ in table[k])):
        shares = table[key]
        name, blocks, threads, registers, shared = key
        print(f"{sum(s for s, _, _ in shares) / steps:9.1f} {statistics.median(s for s, _, _ in shares):7.2f} "
              f"{statistics.median(e for _, e, _ in shares):7.2f} {statistics.median(d for _, _, d in shares):7.2f} "
              f"{len(shares) / steps:6.1f}  {name} [{blocks} x {threads}, {registers}, {shared // 1024}]")
    print(f"step {statistics.median(totals):.1f} us, of which {statistics.median(gaps):.1f} before its first kernel")


if __name__ == "__main__":
    main()
