#!/usr/bin/env python3
"""Where the time of a decode step goes: bench/cuda/trace/step_times.py TRACE [STEPS]

TRACE is the output of kernel_trace.so. The last STEPS steps count (default 8); a step ends with the kernel that selects tokens.
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
    # If token selection takes two kernels, the second one ends the step.
    ends = [i for i in ends if i + 1 == len(rows) or not re.search("argmax|sample", rows[i + 1][6])]
    if len(ends) < steps + 1:
        sys.exit(f"{sys.argv[1]}: {len(ends)} steps are too few")
    names = readable(sorted({row[6] for row in rows}))
    lengths = {}
    for begin, end, blocks, threads, registers, shared, name in rows[ends[-steps - 1] + 1:ends[-1] + 1]:
        lengths.setdefault((names[name], blocks, threads, registers, shared), []).append((end - begin) / 1e3)
    print(f"{'us a step':>9} {'each':>7} {'times':>6}  kernel [blocks x threads, registers, KB shared]")
    for key, all_of_it in sorted(lengths.items(), key=lambda entry: -sum(entry[1])):
        name, blocks, threads, registers, shared = key
        print(f"{sum(all_of_it) / steps:9.1f} {statistics.median(all_of_it):7.2f} {len(all_of_it) / steps:6.1f}  "
              f"{name} [{blocks} x {threads}, {registers}, {shared // 1024}]")
    print(f"{sum(map(sum, lengths.values())) / steps:9.1f} in all, one kernel after the other")
    between = [rows[end + 1][0] - rows[end][1] for end in ends[-steps - 1:-1]]
    whole = [rows[b][1] - rows[a][1] for a, b in zip(ends[-steps - 1:-1], ends[-steps:])]
    print(f"{statistics.median(whole) / 1e3:9.1f} from step to step, {statistics.median(between) / 1e3:.1f} of it before the first kernel")


if __name__ == "__main__":
    main()
