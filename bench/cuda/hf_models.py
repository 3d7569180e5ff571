#!/usr/bin/env python3
"""Hugging Face transformers on the shapes of millrace's synthetic models: random weights, bf16, the same GPU.

    bench/cuda/hf_models.py --shape llama-3-8b --how eager,compiled --batch 1,8,32 --depth 1024 --prompt 1024 [--json FILE]

Decode: one token for each of BATCH sequences with DEPTH positions in the cache, the median of STEPS steps, greedy. Eager grows its
cache as generate() does; compiled uses a static cache and torch.compile with CUDA graphs, the library's fastest mode.
Prefill: one prompt, logits of its last token. Failures are reported and skipped. Processes with the same --turns file compile
concurrently and time one at a time.
"""

import argparse
import contextlib
import fcntl
import json
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

# vocabulary, hidden, layers, heads, KV heads, head size, feed-forward, context, rope base, tied
SHAPES = {
    "llama-2-7b": (32000, 4096, 32, 32, 32, 128, 11008, 4096, 1e4, False),
    "llama-3-8b": (128256, 4096, 32, 32, 8, 128, 14336, 8192, 5e5, False),
    "llama-3.2-1b": (128256, 2048, 16, 32, 8, 64, 8192, 131072, 5e5, True),
    "tiny": (300, 64, 2, 4, 2, 16, 128, 512, 1e4, True),
}


def make_model(shape, device):
    vocab, hidden, layers, heads, kv_heads, head_dim, feed, context, theta, tied = SHAPES[shape]
    config = LlamaConfig(vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                         num_key_value_heads=kv_heads, head_dim=head_dim, intermediate_size=feed, max_position_embeddings=context,
                         rope_theta=theta, tie_word_embeddings=tied)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        return LlamaForCausalLM(config).eval()


def finish(device):
    if device == "cuda":
        torch.cuda.synchronize()


WARM_UP, TURNS = 3, []


@contextlib.contextmanager
def turn():
    with contextlib.ExitStack() as held:
        for path in TURNS:
            fcntl.flock(held.enter_context(open(path, "a")), fcntl.LOCK_EX)
        yield


def median_seconds(step, count, device):
    for i in range(WARM_UP):
        step(i)
    times = []
    with turn():
        for i in range(WARM_UP, WARM_UP + 1 + count):
            finish(device)
            begin = time.perf_counter()
            step(i)
            finish(device)
            times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def random_ids(model, *shape):
    return torch.randint(0, model.config.vocab_size, shape, device=model.device)


def decode_eager(model, batch, depth, steps):
    filled = model(random_ids(model, batch, depth), use_cache=True, logits_to_keep=1)
    state = {"cache": filled.past_key_values, "token": filled.logits[:, -1:].argmax(-1)}

    def step(_):
        out = model(state["token"], past_key_values=state["cache"], use_cache=True)
        state["token"] = out.logits[:, -1:].argmax(-1)

    return batch / median_seconds(step, steps, model.device.type)


def decode_compiled(model, batch, depth, steps):
    cache = StaticCache(config=model.config, max_cache_len=depth + steps + 64, max_batch_size=batch, device=model.device,
                        dtype=torch.bfloat16)
    positions = torch.arange(depth, device=model.device)
    model(random_ids(model, batch, depth), past_key_values=cache, cache_position=positions, logits_to_keep=1)
    forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
    state = {"token": random_ids(model, batch, 1)}

    def step(i):
        out = forward(state["token"], past_key_values=cache, cache_position=torch.tensor([depth + i], device=model.device))
        state["token"] = out.logits[:, -1:].argmax(-1).clone()

    return batch / median_seconds(step, steps, model.device.type)


def prefill(model, length):
    ids = random_ids(model, 1, length)
    return length / median_seconds(lambda _: model(ids, use_cache=True, logits_to_keep=1), 5, model.device.type)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="llama-3-8b")
    parser.add_argument("--how", default="eager", help="eager, compiled or both, with a comma")
    parser.add_argument("--batch", default="1,8,32")
    parser.add_argument("--depth", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=1024, help="0: none")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json")
    parser.add_argument("--turns", help="a file to be locked while timing")
    o = parser.parse_args()
    TURNS.extend([o.turns] if o.turns else [])
    model = make_model(o.shape, o.device)
    tests = [(how, batch) for how in o.how.split(",") for batch in map(int, o.batch.split(","))]
    results = []
    with torch.no_grad():
        for how, batch in tests + ([("eager", 0)] if o.prompt else []):
            test = f"tg at {o.depth}" if batch else f"pp{o.prompt}"
            try:
                if batch == 0:
                    rate = prefill(model, o.prompt)
                else:
                    rate = (decode_eager if how == "eager" else decode_compiled)(model, batch, o.depth, o.steps)
            except Exception as error:
                print(f"{o.shape} {how} batch {batch} {test}: not run: {str(error).splitlines()[0][:150]}", flush=True)
                continue
            print(f"{o.shape} {how} batch {batch} {test}: {rate:.1f} tokens/s", flush=True)
            results.append({"model": o.shape, "how": how, "batch": max(batch, 1), "test": "tg" if batch else "pp",
                            "depth": o.depth if batch else 0, "tokens_per_second": rate})
            if o.json:
                with open(o.json, "w") as file:
                    json.dump({"torch": torch.__version__, "results": results}, file, indent=1)
            if o.device == "cuda":
                torch.cuda.empty_cache()


main()
