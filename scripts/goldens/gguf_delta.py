"""What llama.cpp's converter does to gated delta nets (Qwen3-Next, Qwen 3.5)."""

import gguf
import torch

ARCHITECTURES = (gguf.MODEL_ARCH.QWEN3NEXT, gguf.MODEL_ARCH.QWEN35, gguf.MODEL_ARCH.QWEN35MOE)


def add_metadata(writer, config):
    writer.add_rope_dimension_count(int(config["head_dim"] * config["rope_parameters"]["partial_rotary_factor"]))
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    writer.add_full_attention_interval(config["layer_types"].index("full_attention") + 1)


def with_numbered_head(weights, layer):
    """The head that predicts a further token under the names of a layer behind the last."""
    parts = {"mtp.fc.": "eh_proj.", "mtp.pre_fc_norm_embedding.": "enorm.", "mtp.pre_fc_norm_hidden.": "hnorm.",
             "mtp.norm.": "shared_head.norm.", "mtp.layers.0.": ""}
    renamed = {}
    for name, tensor in weights.items():
        for old, new in parts.items():
            if name.startswith(old):
                name = f"model.layers.{layer}.{new}{name.removeprefix(old)}"
        renamed[name] = tensor
    return renamed


def is_f32(name):
    """The convolution's weights stay in f32 whatever the file's type."""
    return "ssm_conv1d" in name


def tensors(arch, config, name, tensor):
    """(Hugging Face name, converted tensor) of one weight; the names map to GGUF's."""
    key_heads, value_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    keys, values = key_heads * config["linear_key_head_dim"], value_heads * config["linear_value_head_dim"]

    def tiled(t, dim=0):
        """Value heads from [key head, its value heads] to [value head of a key head, key heads]."""
        if arch == gguf.MODEL_ARCH.QWEN3NEXT:
            return t
        return t.unflatten(dim, (key_heads, value_heads // key_heads, -1)).transpose(dim, dim + 1).flatten(dim, dim + 2)

    if name.endswith("norm.weight") and "linear_attn" not in name:
        tensor = tensor.float() + 1
    elif name.endswith("in_proj_qkvz.weight"):
        of_head = values // key_heads
        parts = tensor.unflatten(0, (key_heads, -1)).split([keys // key_heads] * 2 + [of_head] * 2, dim=1)
        q, k, v, z = (part.flatten(0, 1) for part in parts)
        yield name.replace("qkvz", "qkv"), torch.cat((q, k, v))
        name, tensor = name.replace("qkvz", "z"), z
    elif name.endswith("in_proj_qkv.weight") or name.endswith("conv1d.weight"):
        tensor = tensor.squeeze(1) if tensor.dim() == 3 else tensor
        tensor = torch.cat((tensor[: 2 * keys], tiled(tensor[2 * keys :])))
    elif name.endswith(("in_proj_z.weight", "in_proj_a.weight", "in_proj_b.weight")):
        tensor = tiled(tensor)
    elif name.endswith("linear_attn.out_proj.weight"):
        tensor = tiled(tensor, dim=1)
    elif name.endswith("A_log"):
        tensor = -torch.exp(tiled(tensor.float()))
    elif name.endswith("dt_bias"):
        name, tensor = name.replace("dt_bias", "dt_proj.bias"), tiled(tensor)
    yield name, tensor.contiguous()
