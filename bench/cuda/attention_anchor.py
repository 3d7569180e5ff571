#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention (flash and cuDNN) on the shapes of bench/cuda/attention.cu.

Timed the same way: inside a CUDA graph, keys and values rotated past L2, the median of the replays.
attention_anchor.py [FILE.json] [--decode | --prompts]: writes the decode times to FILE; --decode: decode only; --prompts: TFLOP/s over
prompt lengths only; --hostile: counts NaN outputs when products leave the range of f32.
"""

import json
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def time_in_graph(count, launch):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            launch(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(count):
            launch(i)
    times, spent = [], 0
    for i in range(40):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
        spent += times[-1]
        if spent > 60 and i > 4:
            break
    times = sorted(times[1:])
    return times[len(times) // 2] * 1000 / count


def measure(backend, kv_heads, dim, batch, rows, context, causal):
    bytes_each = 4 * kv_heads * dim * batch * context
    copies = min(24, max(1, 400_000_000 // bytes_each + 1))
    make = lambda heads, length: torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.bfloat16)
    q = make(32, rows)
    keys, values = [make(kv_heads, context) for _ in range(copies)], [make(kv_heads, context) for _ in range(copies)]

    def launch(i):
        at = i % copies
        F.scaled_dot_product_attention(q, keys[at], values[at], is_causal=causal, enable_gqa=kv_heads != 32)

    try:
        with sdpa_kernel(backend), torch.no_grad():
            return time_in_graph(4 if bytes_each > 200_000_000 else 24, launch)
    except RuntimeError as error:
        print("  not run:", str(error).splitlines()[0])
        return float("nan")


def time_prompts():
    lengths = [512 << i for i in range(6)]
    print("one prompt, bf16, head 128: TFLOP/s at", *lengths)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        for kv_heads in (8, 32):
            rates = [4 * 32 * 128 * n * (n + 1) / 2 / measure(backend, kv_heads, 128, 1, n, n, True) * 1e-6 for n in lengths]
            print(f"  32/{kv_heads:<2}", *(f"{rate:6.0f}" for rate in rates), backend.name, flush=True)


def count_lost_numbers():
    rows, loud = 300, 1e19
    make = lambda heads, scale: (torch.randn(1, heads, rows, 128, device="cuda") * scale).to(torch.bfloat16)
    q, k, v = make(32, loud), make(8, loud), make(8, 1)
    shared = lambda x: x.double().repeat_interleave(4, 1)
    later = torch.ones(rows, rows, device="cuda", dtype=torch.bool).triu(1)
    scores = (q.double() @ shared(k).transpose(-1, -2) / 128**0.5).masked_fill(later, float("-inf"))
    print("reference in f64: all are numbers:", (scores.softmax(-1) @ shared(v)).isfinite().all().item())
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        with sdpa_kernel(backend), torch.no_grad():
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        print(f"{backend.name}: {(~out.isfinite()).sum().item()} of {out.numel()} are none")


def main():
    if "--hostile" in sys.argv:
        return count_lost_numbers()
    if "--prompts" in sys.argv:
        return time_prompts()
    print("torch", torch.__version__, torch.cuda.get_device_name())
    print("decode, bf16, head 128: us (TB/s): flash, cuDNN")
    shapes = [(h, b, n) for h in (32, 8) for b in (1, 8, 32) for n in (1024, 4096, 16384)]
    shapes = [(h, b, n) for h, b, n in shapes if h * b * n <= 32 * 8 * 16384]
    shapes += [(8, 1, 128), (8, 1, 512), (8, 3, 1024), (8, 13, 4096), (8, 48, 1024), (8, 64, 1024)]
    shapes += [(32, 5, 1000), (32, 64, 1024), (32, 3, 1024), (32, 7, 1024), (32, 13, 1024)]
    shapes += [(8, 5, 1024), (8, 13, 1024), (8, 20, 1024), (8, 20, 4096), (8, 24, 1024), (8, 40, 1024), (32, 3, 4096)]
    kept = []
    for kv_heads, batch, context in shapes:
        times = {"kv_heads": kv_heads, "batch": batch, "context": context}
        row = f"32/{kv_heads} B{batch} L{context}".ljust(22)
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            us = measure(backend, kv_heads, 128, batch, 1, context, False)
            times[backend.name] = us
            row += f" {us:8.2f} ({4 * kv_heads * 128 * batch * context / us * 1e-6:.2f})"
        kept.append(times)
        print(row, flush=True)
    if len(sys.argv) > 1 and not sys.argv[1].startswith("--"):
        with open(sys.argv[1], "w") as file:
            json.dump(kept, file, indent=1)
    if "--decode" in sys.argv:
        return
    print("prefill, bf16, causal: us (TFLOP/s)    flash    cuDNN")
    prompts = [(32, 128, 1, 1024), (8, 128, 1, 1024), (8, 128, 1, 2048), (8, 128, 1, 4096), (8, 128, 1, 8192)]
    prompts += [(32, 128, 4, 4096), (8, 128, 8, 1024), (8, 64, 1, 4096), (8, 96, 1, 4096), (8, 256, 1, 4096)]
    for kv_heads, dim, batch, rows in prompts:
        row = f"32/{kv_heads} d{dim} B{batch} rows {rows}".ljust(26)
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            us = measure(backend, kv_heads, dim, batch, rows, rows, True)
            row += f" {us:9.1f} ({4 * 32 * dim * batch * rows * (rows + 1) / 2 / us * 1e-6:.0f})"
        print(row, flush=True)


if __name__ == "__main__":
    main()
