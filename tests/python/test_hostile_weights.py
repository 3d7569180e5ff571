"""Weights that drive scores, values and activations out of the range of 16 bits, or are NaN: wherever exact logits are numbers, fast
ones must be numbers, too."""

import os

import gguf
import numpy as np
import pytest
from tiny_model import write_tiny_model

DEVICE = os.environ.get("MILLRACE_DEVICE", "auto")
TOKENS = ",".join(str(5 + i * i % 90) for i in range(150))

# Factors that keep f32, in which the reference computes, finite.
FACTORS = {
    "sharp scores": {"attn_q": 3e2, "attn_k": 3e2},
    "keys beyond f16": {"attn_q": 3e4, "attn_k": 3e4},
    "equal scores": {"attn_q": 0},
    "values near the end of f16": {"attn_v": 2e4, "attn_output": 1e-4},
    "values beyond f16": {"attn_v": 6e4, "attn_output": 1e-4},
    "gates beyond f16": {"ffn_gate": 6e4, "ffn_down": 1e-4},
    "products beyond f16": {"ffn_gate": 1e4, "ffn_up": 1e4, "ffn_down": 1e-6},
    "a loud embedding": {"token_embd": 6e4},
    "a loud residual": {"attn_output": 3e4, "ffn_down": 3e4},
    "nothing but zeros": {"attn": 0, "ffn": 0, "token_embd": 0},
}
WIDE = {
    "scores beyond f32": {"attn_q": 1e30, "attn_k": 1e30},
    "values of 1e30": {"attn_v": 1e30, "attn_output": 1e-30},
    "an embedding whose squares are infinite": {"token_embd": 1e20},
}


@pytest.mark.parametrize("head", [32, 64])
@pytest.mark.parametrize("name, kind", [(n, k) for n in FACTORS for k in ("F16", "BF16")] + [(n, "BF16") for n in WIDE])
def test_numbers_stay_numbers(millrace, tmp_path, name, kind, head):
    kind = gguf.GGMLQuantizationType[kind]
    model = write_tiny_model(tmp_path / "hostile.gguf", kind=kind, head=head, factors={**FACTORS, **WIDE}[name])

    def logits(*options):
        rows = millrace.json("logits", "-m", model, "--tokens", TOKENS, *options)["logits"]
        return np.array(rows, dtype=np.float64)  # null, JSON's substitute for NaN, becomes NaN

    exact = logits("--device", "cpu", "--exact")
    assert np.isfinite(exact).all()
    for options in ([], ["--chunk", "1"], ["--chunk", "7"], ["--kv-type", "f16", "--chunk", "1"], ["--kv-type", "q8_0"]):
        got = logits("--device", DEVICE, *options)
        assert np.isfinite(got).all(), (options, np.argwhere(~np.isfinite(got))[0])


@pytest.mark.parametrize("head", [32, 64])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_token_that_is_no_number_spoils_itself_alone(millrace, tmp_path, value, head):
    bad, tokens = 70, [int(t) for t in TOKENS.split(",")]
    tokens[bad] = 95
    model = write_tiny_model(tmp_path / "broken.gguf", kind=gguf.GGMLQuantizationType.BF16, head=head, broken=(95, value))
    for device, *options in (["cpu", "--exact"], [DEVICE], [DEVICE, "--chunk", "1"], [DEVICE, "--chunk", "33"], [DEVICE, "--kv-type", "f16"]):
        rows = millrace.json("logits", "-m", model, "--tokens", ",".join(map(str, tokens)), "--device", device, *options)["logits"]
        numbers = np.isfinite(np.array(rows, dtype=np.float64)).all(axis=1)
        assert np.flatnonzero(~numbers).tolist() == [bad], (device, options)
