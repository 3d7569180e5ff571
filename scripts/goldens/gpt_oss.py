"""gpt-oss: its cases, its experts in GGUF, and folders with experts in MXFP4 as OpenAI publishes them."""

import json

import gguf
import numpy as np
import safetensors.torch
import torch

from .cases import SMALL, Case, rope

MXFP4 = gguf.GGMLQuantizationType.MXFP4
TINY = SMALL | {"vocab_size": 80, "hidden_size": 24, "intermediate_size": 16, "num_local_experts": 4,
                "num_experts_per_tok": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
                "sliding_window": 12, "tie_word_embeddings": False}
YARN = {"factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 64}
SCALED = rope("yarn", 150000.0, **YARN)
DEFAULT_YARN = {"factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 4096}


def gpt_oss(name, config, covers, matters=(), **more):
    return Case(name, "GptOssForCausalLM", TINY | config, covers, list(matters), prompt=40, **more)


CASES = [
    gpt_oss(
        "gpt_oss",
        SCALED,
        "sinks, windows on every other layer, clamped SwiGLU, YaRN without rounding, biases everywhere",
        matters=[{"sliding_window": 64}, {"swiglu_limit": 0.5}, {"num_experts_per_tok": 1}, rope(theta=150000.0)],
        drop_in_v4=("swiglu_alpha", "swiglu_limit", "attention_bias"),
    ),
    gpt_oss(
        "gpt_oss_settings",
        rope("yarn", 10000.0, **(YARN | {"truncate": True}))
        | {"attention_bias": False, "swiglu_alpha": 1.2, "swiglu_limit": 0.6, "num_experts_per_tok": 4,
           "num_hidden_layers": 3, "layer_types": ["full_attention", "full_attention", "sliding_attention"],
           "num_key_value_heads": 2},
        "other limits and slopes, no biases in attention, all experts, explicit layer_types, YaRN with rounding",
        matters=[{"swiglu_alpha": 1.702}, {"layer_types": ["sliding_attention", "full_attention", "full_attention"]}],
        gguf=False,
        notes="GGUF has no keys for these settings",
    ),
    gpt_oss(
        "gpt_oss_defaults",
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 150000.0} | DEFAULT_YARN},
        "config_v4.json says nothing about the rope: YaRN with factor 32 from 4096",
        matters=[rope(theta=150000.0)],
        drop_in_v4=("rope_scaling", "rope_theta", "swiglu_alpha", "swiglu_limit", "attention_bias", "rms_norm_eps"),
        gguf=False,
        notes="GGUF files always say it",
    ),
    gpt_oss(
        "gpt_oss_mxfp4",
        SCALED | {"hidden_size": 32, "intermediate_size": 32},
        "experts in MXFP4: blocks and scales in the folder, GGUF's type in the file",
        quantized="mxfp4_experts",
    ),
]


def is_expert_matrix(name):
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


def rounded(matrix):
    """[E, k, n] rounded to MXFP4 along k."""
    rows = matrix.transpose(1, 2).contiguous().numpy()
    back = gguf.quants.dequantize(gguf.quants.quantize(rows, MXFP4), MXFP4)
    return torch.from_numpy(back.reshape(rows.shape)).transpose(1, 2)


def round_experts(module):
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if is_expert_matrix(name):
                parameter.copy_(rounded(parameter))


def gguf_tensors(name, tensor):
    """GGUF has gate and up apart, and rows of inputs; None: an ordinary tensor."""
    if name.endswith(".sinks"):
        return [(f"blk.{name.split('.')[2]}.attn_sinks.weight", tensor)]
    if "mlp.experts." not in name:
        return None
    prefix = f"blk.{name.split('.')[2]}.ffn_"
    kind = "bias" if name.endswith("_bias") else "weight"
    if tensor.dim() == 3:
        tensor = tensor.transpose(1, 2).contiguous()
    if "down_proj" in name:
        return [(f"{prefix}down_exps.{kind}", tensor)]
    return [(f"{prefix}gate_exps.{kind}", tensor[:, ::2].contiguous()), (f"{prefix}up_exps.{kind}", tensor[:, 1::2].contiguous())]


def gguf_type(case, name, usual):
    if case.quantized == "mxfp4_experts" and name.endswith("_exps.weight"):
        return MXFP4
    return gguf.GGMLQuantizationType.F32 if name.endswith(".bias") or "ffn_gate_inp" in name else usual


def blocks_and_scales(matrix):
    """[E, k, n] -> u8 [E, n, k / 32, 16] with element 2 b in the low half of byte b, and u8 [E, n, k / 32]."""
    rows = matrix.transpose(1, 2).contiguous().numpy()
    packed = gguf.quants.quantize(rows, MXFP4).reshape(*rows.shape[:2], -1, 17)
    codes = np.concatenate([packed[..., 1:] & 15, packed[..., 1:] >> 4], axis=-1)  # GGUF: byte j has elements j, j + 16
    return torch.from_numpy(codes[..., ::2] | codes[..., 1::2] << 4), torch.from_numpy(packed[..., 0].copy())


def quantize_folder(folder):
    """Replaces the experts' matrices by blocks and scales, as in the published folders."""
    path = folder / "model.safetensors"
    weights = {}
    for name, tensor in safetensors.torch.load_file(path).items():
        if not is_expert_matrix(name):
            weights[name] = tensor
            continue
        weights[f"{name}_blocks"], weights[f"{name}_scales"] = blocks_and_scales(tensor)
    safetensors.torch.save_file(weights, path, metadata={"format": "pt"})
    for config in (folder / "config.json", folder / "config_v4.json"):
        keys = json.loads(config.read_text())
        keys["quantization_config"] = {"quant_method": "mxfp4",
                                       "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                  "model.embed_tokens", "lm_head"]}
        config.write_text(json.dumps(keys, indent=2) + "\n")


def add_experts(writer, config):
    writer.add_vocab_size(config["vocab_size"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])
