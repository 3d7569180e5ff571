"""Quantized weights of the tiny models. The model computes with the numbers that the stored weights stand for."""

import gguf
import torch

from . import gpt_oss

FP8_TILE = (32, 64)  # not the usual 128 x 128: the models are small, and some tiles are cut


def is_quantized(name, parameter):
    return parameter.dim() == 2 and "layers" in name


def fp8(weight):
    """E4M3 numbers and one factor per tile."""
    rows, cols = weight.shape
    scales = torch.empty(-(-rows // FP8_TILE[0]), -(-cols // FP8_TILE[1]))
    stored = torch.empty(rows, cols, dtype=torch.float8_e4m3fn)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = slice(i * FP8_TILE[0], (i + 1) * FP8_TILE[0]), slice(j * FP8_TILE[1], (j + 1) * FP8_TILE[1])
            scales[i, j] = weight[at].abs().max() / 448
            stored[at] = (weight[at] / scales[i, j]).to(torch.float8_e4m3fn)
    return stored, scales


def fp8_numbers(stored, scales):
    each = scales.repeat_interleave(FP8_TILE[0], 0).repeat_interleave(FP8_TILE[1], 1)
    return stored.float() * each[: stored.shape[0], : stored.shape[1]]


def mxfp4_numbers(weight):
    kind = gguf.GGMLQuantizationType.MXFP4
    return torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(weight.numpy(), kind), kind))


def quantize(module, kind):
    """Rounds the module's matrices; returns the tensors that its folder has instead of them."""
    if kind == "mxfp4_experts":
        gpt_oss.round_experts(module)
        return {}
    stored = {}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if kind == "" or not is_quantized(name, parameter):
                continue
            if kind == "mxfp4":  # the folder holds the rounded numbers; GGUF has the format
                parameter.copy_(mxfp4_numbers(parameter))
                continue
            stored[name], stored[name + "_scale_inv"] = fp8(parameter)
            parameter.copy_(fp8_numbers(stored[name], stored[name + "_scale_inv"]))
    return stored


def config_entry(kind):
    if kind != "fp8":
        return {}
    return {
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "weight_block_size": list(FP8_TILE),
        }
    }
