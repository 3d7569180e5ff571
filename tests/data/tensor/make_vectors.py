#!/usr/bin/env python3
"""Writes dequantize.bin and quantize.bin beside this script: blocks and numbers as PyPI's gguf converts them.

Needs: pip install gguf numpy. Each record: name (16 bytes, zero-padded), u32 bytes of blocks, u32 numbers, the blocks, the
numbers as f32.
"""
import pathlib
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

HERE = pathlib.Path(__file__).parent
SEED = 20240611

# Where each block type keeps its half-precision fields: bytes from the start of the block.
HALVES = {
    T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.IQ4_NL: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_XS: [0], T.MXFP4: [],
}


def record(name: str, blocks: np.ndarray, numbers: np.ndarray) -> bytes:
    raw, values = blocks.tobytes(), numbers.astype(np.float32).tobytes()
    return struct.pack("<16sII", name.encode(), len(raw), numbers.size) + raw + values


def random_blocks(rng: np.random.Generator, t: T, count: int) -> np.ndarray:
    """Blocks of random bytes whose scales are finite: ordinary, large, subnormal and zero ones."""
    blocks = rng.integers(0, 256, (count, GGML_QUANT_SIZES[t][1]), dtype=np.uint8)
    for at in HALVES[t]:
        scales = (rng.standard_normal(count) * 10.0 ** rng.integers(-8, 2, count)).astype(np.float16)
        scales[0] = 0
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(count, 2)
    return blocks


def f8_blocks(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of an f32 scale and 32 E4M3 numbers (all bytes but NaN), and the numbers."""
    scales = (rng.standard_normal((count, 1)) * 10.0 ** rng.integers(-8, 2, (count, 1))).astype(np.float32)
    q = rng.integers(0, 256, (count, 32), dtype=np.uint8)
    q[q & 0x7F == 0x7F] = 0x7E
    sign, exponent, mantissa = np.where(q >> 7, -1.0, 1.0), (q >> 3 & 15).astype(np.int32), (q & 7) / 8
    numbers = (sign * np.ldexp(mantissa + (exponent > 0), np.maximum(exponent, 1) - 7)).astype(np.float32)
    return np.concatenate([scales.view(np.uint8), q], axis=1), scales * numbers


def main() -> None:
    rng = np.random.default_rng(SEED)
    with open(HERE / "dequantize.bin", "wb") as out:
        for t in HALVES:
            blocks = random_blocks(rng, t, 10 if GGML_QUANT_SIZES[t][0] == 256 else 40)
            out.write(record(t.name, blocks, dequantize(blocks, t)))
        halves = rng.integers(0, 0x7C00, 600, dtype=np.uint16) | (rng.integers(0, 2, 600).astype(np.uint16) << 15)
        out.write(record("F16", halves, halves.view(np.float16).astype(np.float32)))
        out.write(record("BF16", halves, dequantize(halves.view(np.uint8), T.BF16)))
        out.write(record("F8_E4M3", *f8_blocks(rng, 40)))
    with open(HERE / "quantize.bin", "wb") as out:
        numbers = (rng.standard_normal((40, 32)) * 10.0 ** rng.integers(-4, 3, (40, 1))).astype(np.float32)
        numbers[1] = 0
        numbers[2] = 0.25
        for t in (T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.MXFP4):
            out.write(record(t.name, quantize(numbers, t), numbers.reshape(-1)))


if __name__ == "__main__":
    main()
