#!/usr/bin/env python3
"""Writes the model files beside this script with PyPI's gguf and safetensors: what other tools write, we must read.

Needs: pip install gguf numpy safetensors. Element i of a plain tensor is i / 8 - 2, exact in every format here.
"""
import json
import pathlib
import shutil
import struct

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T, GGUFValueType as V
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent


def numbers(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape), dtype=np.float32) / 8 - 2).reshape(shape)


def add_metadata(w: gguf.GGUFWriter) -> None:
    w.add_uint8("test.u8", 200)
    w.add_int8("test.i8", -100)
    w.add_uint16("test.u16", 60000)
    w.add_int16("test.i16", -30000)
    w.add_uint32("test.u32", 4_000_000_000)
    w.add_int32("test.i32", -2_000_000_000)
    w.add_float32("test.f32", 0.5)
    w.add_bool("test.bool", True)
    w.add_string("test.string", "Größe \U0001f600")
    w.add_uint64("test.u64", 2**64 - 1)
    w.add_int64("test.i64", -(2**62))
    w.add_float64("test.f64", 1e300)
    w.add_array("test.strings", ["", "a", "bc", "\n"])
    w.add_array("test.i32s", [1, -2, 3])
    w.add_array("test.f32s", [0.5, -1.5])
    w.add_array("test.bools", [True, False, True])
    w.add_key_value("test.u8s", list(range(5)), V.ARRAY, sub_type=V.UINT8)
    w.add_array("test.nested", [[1, 2], [3]])
    w.add_block_count(2)
    w.add_rope_freq_base(1e6)
    w.add_context_length(4096)


def write_all_types() -> None:
    w = gguf.GGUFWriter(HERE / "all_types.gguf", "llama")
    add_metadata(w)
    w.add_tensor("f32", numbers(3, 4))
    w.add_tensor("f16", numbers(2, 3, 4).astype(np.float16))
    w.add_tensor("bf16", gguf.quants.quantize(numbers(3, 8), T.BF16), raw_dtype=T.BF16)
    w.add_tensor("vector", numbers(5))
    rng = np.random.default_rng(7)
    for t in (T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_NL, T.IQ4_XS,
              T.IQ2_XXS, T.MXFP4):
        block, size = gguf.GGML_QUANT_SIZES[t]
        w.add_tensor(t.name.lower(), rng.integers(0, 256, (3, 2 * size), dtype=np.uint8), raw_dtype=t)
    w.add_tensor("i32", np.arange(6, dtype=np.int32).reshape(2, 3))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_split() -> None:
    w = gguf.GGUFWriter(HERE / "split.gguf", "llama", split_max_tensors=2)
    w.add_block_count(2)
    for i in range(5):
        w.add_tensor(f"tensor.{i}", numbers(2, 4) + i)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_safetensors() -> None:
    save_file({"f32": numbers(3, 4), "f16": numbers(2, 3).astype(np.float16), "buffer": np.arange(4, dtype=np.int64),
               "empty": np.zeros((0, 4), np.float32)}, HERE / "plain.safetensors", metadata={"format": "pt"})


def write_quantized(path: pathlib.Path) -> None:
    """FP8 with scales per tile, and MXFP4 blocks and scales, as Hugging Face folders have them; numpy knows neither."""
    tensors = {"w": ("F8_E4M3", [130, 32], 1), "w_scale_inv": ("F32", [2, 1], 4),
               "e.gate_up_proj_blocks": ("U8", [2, 4, 1, 16], 1), "e.gate_up_proj_scales": ("U8", [2, 4, 1], 1)}
    header, data = {}, b""
    for name, (dtype, shape, size) in tensors.items():
        tensor = bytes(i % 120 for i in range(int(np.prod(shape)) * size))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(tensor)]}
        data += tensor
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_fuzz_seeds() -> None:
    seeds = HERE.parent.parent.parent / "fuzz" / "seeds"
    write_quantized(seeds / "safetensors" / "quantized.safetensors")
    for folder, names in (("gguf", ["all_types.gguf", "split-00001-of-00003.gguf"]),
                          ("safetensors", ["plain.safetensors"])):
        (seeds / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(HERE / name, seeds / folder / name)


if __name__ == "__main__":
    write_all_types()
    write_split()
    write_safetensors()
    write_fuzz_seeds()
