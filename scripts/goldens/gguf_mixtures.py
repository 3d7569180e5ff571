"""What llama.cpp's converter does to mixtures of experts: one tensor for all experts, and their keys."""

import re

import gguf
import torch


def converted(weights):
    """Experts stacked, granite's gate and up apart, the choice bias under a name with a suffix."""
    experts, plain = {}, {}
    for name, tensor in weights.items():
        name = name.replace("e_score_correction_bias", "e_score_correction.bias")
        if match := re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name):
            experts.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = tensor
        elif "input_linear" in name:
            stacked = "block_sparse_moe" in name
            gate, up = tensor.chunk(2, dim=1 if stacked else 0)
            place = "mlp.experts" if stacked else "mlp.shared_experts"
            prefix = name.split("block_sparse_moe" if stacked else "shared_mlp")[0]
            plain[f"{prefix}{place}.gate_proj.weight"] = gate.contiguous()
            plain[f"{prefix}{place}.up_proj.weight"] = up.contiguous()
        elif name.endswith("e_score_correction.bias") or name.endswith("shared_expert_gate.weight"):
            plain[name] = tensor.squeeze(0)
        else:
            plain[name] = tensor
    for name, parts in experts.items():
        plain[name] = torch.stack([parts[i] for i in range(len(parts))])
    return plain


def is_router(name):
    """Routers stay in f32 whatever the file's type."""
    return "ffn_gate_inp" in name


def add_mixture(writer, config):
    first = lambda *keys: next((config[key] for key in keys if config.get(key) is not None), None)
    writer.add_expert_count(first("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"))
    writer.add_expert_used_count(first("num_experts_per_tok", "moe_k"))
    kind = config["model_type"]
    if width := config.get("moe_intermediate_size") or (kind == "minimax_m2" and config["intermediate_size"]):
        writer.add_expert_feed_forward_length(width)
    if shared := first("shared_expert_intermediate_size", "shared_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(shared)
    if kind == "ernie4_5_moe":
        writer.add_interleave_moe_layer_step(config["moe_layer_interval"])
        writer.add_leading_dense_block_count(config["moe_layer_start_index"])
        writer.add_expert_shared_count(config["moe_num_shared_experts"])
    if kind == "minimax_m2":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if kind == "glm4_moe":
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_leading_dense_block_count(config["first_k_dense_replace"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
