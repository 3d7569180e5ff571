#!/usr/bin/env python3
"""timeline.py FILE.bin...: prints a table for each kernel of a layer from timeline's output.

Microseconds since the first block of attention; each event as first / median / last block, medians over layers. Then the share of a
kernel's reads that arrived in each microsecond. A flat GEMM's stages complete with x: weights that arrived earlier count from then on."""
import sys
import warnings

import numpy as np

KERNELS = ["attention", "o", "gate and up", "down", "qkv"]
EACH, CLOCK, CLOCK_HIGH, MULTIPROCESSOR, LANDED = 256, 6, 7, 8, 9  # as in stamps.cuh
EVENTS = {0: "started", 1: "asked", 2: "waited", "first": "first landed", "last": "last landed", 3: "multiplied", 4: "met", 5: "stored"}


def read(path):
    """The stamps of every launch, [blocks, EACH]."""
    blocks = [int(line) for line in open(path.removesuffix(".bin") + ".txt")]
    data = np.fromfile(path, np.uint32).reshape(-1, EACH).astype(np.int64)
    return np.split(data, np.cumsum(blocks)[:-1])


def to_us(launches):
    """Converts the cycle counts of each multiprocessor to the common clock: one offset per multiprocessor, one rate for all."""
    rows = np.concatenate(launches)
    ns, sm = rows[:, CLOCK] + (rows[:, CLOCK_HIGH] << 32), rows[:, MULTIPROCESSOR]
    ns = ns - ns.min()
    first = {s: rows[sm == s][0, 0] for s in np.unique(sm)}

    def cycles(d):
        since = (d - np.array([first[s] for s in d[:, MULTIPROCESSOR]])[:, None] + 2**31) % 2**32 - 2**31
        return np.where(d == 0, np.nan, since).astype(float)

    started = cycles(rows)[:, 0]
    rate = np.median([np.polyfit(started[sm == s], ns[sm == s], 1)[0] for s in first if (sm == s).sum() > 8])
    offset = {s: np.median(ns[sm == s] - rate * started[sm == s]) for s in first}
    off = np.median([np.std(ns[sm == s] - rate * started[sm == s]) for s in first])
    print(f"  {1 / rate:.2f} GHz; the common clock is off by {off:.0f} ns")
    return [(cycles(d) * rate + np.array([offset[s] for s in d[:, MULTIPROCESSOR]])[:, None]) / 1000 for d in launches]


def spread(us, event):
    landed = us[:, LANDED:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # blocks without that event
        v = {"first": np.nanmin, "last": np.nanmax}[event](landed, 1) if isinstance(event, str) else us[:, event]
        return np.array([np.nanmin(v), np.nanmedian(v), np.nanmax(v)])


def main(path):
    launches = read(path)
    print(path)
    for name, d in zip(KERNELS, launches):
        print(f"  {name}: {len(d)} blocks on {len(np.unique(d[:, MULTIPROCESSOR]))} multiprocessors")
    us = to_us(launches)
    layers = range(10, len(us) - 5, 5)
    begins = {i: np.nanmin(us[i][:, 0]) for i in range(0, len(us), 5)}
    print(f"  a layer: {np.median(np.diff(list(begins.values()))):.1f} us\n  {'':12}" + "".join(f"{n:>21}" for n in EVENTS.values()))
    for step in range(-1, 6):  # the qkv before, the layer, the attention after it
        cells = [np.median([spread(us[i + step], event) - begins[i] for i in layers], 0) for event in EVENTS]
        text = ["-" if np.isnan(c).any() else "{:7.1f}{:7.1f}{:7.1f}".format(*c) for c in cells]
        print(f"  {KERNELS[step % 5]:12}" + "".join(f"{t:>21}" for t in text))
    print("  percent of what a kernel reads, in each microsecond from 8 before attention's first block on")
    for step in range(-1, 3):
        landed = np.concatenate([(us[i + step][:, LANDED:] - begins[i]).ravel() for i in layers])
        parts = 100 * np.histogram(landed, bins=48, range=(-8, 40))[0] / max(1, np.isfinite(landed).sum())
        print(f"  {KERNELS[step % 5]:12}" + " ".join(f"{p:.0f}" if p >= 0.5 else "." for p in parts))


for argument in sys.argv[1:]:
    main(argument)
