#!/usr/bin/env python3
"""A random LoRA adapter of rank 16 for Llama-3-8B, as PEFT saves it: bench/cuda/random_adapter.py FOLDER qkvo|all

`qkvo` changes q, k, v and o, `all` every linear layer. To time 32 resident adapters, give the folder 32 names:
  millrace bench -m synthetic:llama-3-8b:bf16 --device cuda -r 2 -p 0 -n 32 -b 32 -d 1024 \\
    $(for i in $(seq 32); do echo --lora a$i=FOLDER; done)
"""
import array
import json
import pathlib
import random
import struct
import sys

LAYERS, RANK, HIDDEN, KV, FEED = 32, 16, 4096, 1024, 14336
ATTENTION = {"q": (HIDDEN, HIDDEN), "k": (HIDDEN, KV), "v": (HIDDEN, KV), "o": (HIDDEN, HIDDEN)}
FEED_FORWARD = {"gate": (HIDDEN, FEED), "up": (HIDDEN, FEED), "down": (FEED, HIDDEN)}


def small_numbers(count):
    """Normal numbers in bf16: the upper halves of f32."""
    floats = array.array("f", (random.gauss(0, 0.01) for _ in range(count)))
    return floats.tobytes()


def main():
    folder, which = pathlib.Path(sys.argv[1]), sys.argv[2]
    modules = {f"self_attn.{name}_proj": shape for name, shape in ATTENTION.items()}
    if which == "all":
        modules |= {f"mlp.{name}_proj": shape for name, shape in FEED_FORWARD.items()}
    f32 = small_numbers(1 << 18)
    numbers = b"".join(f32[i + 2 : i + 4] for i in range(0, len(f32), 4)) * 2
    header, end = {}, 0
    for layer in range(LAYERS):
        for name, (inputs, outputs) in modules.items():
            for part, shape in (("A", [RANK, inputs]), ("B", [outputs, RANK])):
                size = 2 * shape[0] * shape[1]
                header[f"base_model.model.model.layers.{layer}.{name}.lora_{part}.weight"] = {
                    "dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}  # fmt: skip
                end += size
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(header).encode()
    with open(folder / "adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in header.values():
            begin, stop = tensor["data_offsets"]
            at = 2 * random.randrange(1 << 17)
            file.write(numbers[at : at + stop - begin])
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": 16}))


if __name__ == "__main__":
    main()
