"""What llama.cpp's converter does to Mamba-2, its hybrids and LFM2."""

import gguf
import torch

ARCH = gguf.MODEL_ARCH
RECURRENT = {ARCH.MAMBA2, ARCH.GRANITE_HYBRID, ARCH.FALCON_H1, ARCH.NEMOTRON_H, ARCH.NEMOTRON_H_MOE, ARCH.LFM2,
             ARCH.LFM2MOE}


def attention_layers(config):
    kinds = config.get("layers_block_type") or config["layer_types"]
    return [kind in ("full_attention", "attention") for kind in kinds]


def add_mixer(writer, taps, state, heads, inner, groups):
    writer.add_ssm_conv_kernel(taps)
    writer.add_ssm_state_size(state)
    writer.add_ssm_group_count(groups)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_time_step_rank(heads)


def mamba2_metadata(writer, config):
    inner = config["hidden_size"] * config["expand"]
    writer.add_context_length(2**20)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config["num_hidden_layers"])
    add_mixer(writer, config["conv_kernel"], config["state_size"], inner // config["head_dim"], inner, config["n_groups"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])


def add_attention(writer, config):
    writer.add_block_count(len(attention_layers(config)))
    writer.add_embedding_length(config["hidden_size"])
    writer.add_head_count(config["num_attention_heads"])
    heads = config["num_key_value_heads"]
    writer.add_head_count_kv([heads if attends else 0 for attends in attention_layers(config)])
    writer.add_vocab_size(config["vocab_size"])


def lfm2_metadata(writer, config):
    add_attention(writer, config)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["norm_eps"])
    writer.add_shortconv_l_cache(config["conv_L_cache"])
    if "num_experts" in config:
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_leading_dense_block_count(config["num_dense_layers"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        return
    width, multiple = config["intermediate_size"], config["block_multiple_of"]
    if config["block_auto_adjust_ff_dim"]:
        width = int(config["block_ffn_dim_multiplier"] * int(2 * width / 3))
        width = multiple * ((width + multiple - 1) // multiple)
    writer.add_feed_forward_length(width)


def granite_hybrid_metadata(writer, config):
    add_attention(writer, config)
    writer.add_context_length(2**20)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_scaling_finetuned(False)
    writer.add_attention_scale(config["attention_multiplier"])
    writer.add_embedding_scale(config["embedding_multiplier"])
    writer.add_residual_scale(config["residual_multiplier"])
    writer.add_logit_scale(config["logits_scaling"])
    writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
    if config["num_local_experts"] > 0:
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
    inner = config["hidden_size"] * config["mamba_expand"]
    add_mixer(writer, config["mamba_d_conv"], config["mamba_d_state"], config["mamba_n_heads"], inner,
              config["mamba_n_groups"])


def falcon_h1_metadata(writer, config):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    add_mixer(writer, config["mamba_d_conv"], config["mamba_d_state"], config["mamba_n_heads"], config["mamba_d_ssm"],
              config["mamba_n_groups"])


def nemotron_h_metadata(writer, config):
    add_attention(writer, config)
    writer.add_context_length(2**20)
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_scaling_finetuned(False)
    add_mixer(writer, config["conv_kernel"], config["ssm_state_size"], config["mamba_num_heads"],
              config["mamba_num_heads"] * config["mamba_head_dim"], config["n_groups"])
    kinds = config["layers_block_type"]
    width = config["moe_intermediate_size"] if "moe" in kinds else config["intermediate_size"]
    writer.add_feed_forward_length([width if kind in ("moe", "mlp") else 0 for kind in kinds])
    if "moe" in kinds:
        writer.add_expert_count(config["n_routed_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(width)
        writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
        if config.get("moe_latent_size"):
            writer.add_uint32(gguf.Keys.LLM.MOE_LATENT_SIZE.format(arch=writer.arch), config["moe_latent_size"])


METADATA = {
    ARCH.MAMBA2: mamba2_metadata,
    ARCH.LFM2: lfm2_metadata,
    ARCH.LFM2MOE: lfm2_metadata,
    ARCH.GRANITE_HYBRID: granite_hybrid_metadata,
    ARCH.FALCON_H1: falcon_h1_metadata,
    ARCH.NEMOTRON_H: nemotron_h_metadata,
    ARCH.NEMOTRON_H_MOE: nemotron_h_metadata,
}


def folded(name, tensor, config):
    """Falcon-H1's factors, multiplied into the weights."""
    if "down_proj" in name:
        return tensor * config["mlp_multipliers"][1]
    if "gate_proj" in name:
        return tensor * config["mlp_multipliers"][0]
    if "k_proj" in name:
        return tensor * config["key_multiplier"] * config["attention_in_multiplier"]
    if "q_proj" in name or "v_proj" in name:
        return tensor * config["attention_in_multiplier"]
    if "o_proj" in name:
        return tensor * config["attention_out_multiplier"]
    if "out_proj" in name:
        return tensor * config["ssm_out_multiplier"]
    if "in_proj" in name:
        inner, group = config["mamba_d_ssm"], config["mamba_n_groups"] * config["mamba_d_state"]
        parts = tensor.split([inner, inner, group, group, config["mamba_n_heads"]])
        return torch.cat([p * m for p, m in zip(parts, config["ssm_multipliers"])]) * config["ssm_in_multiplier"]
    if "lm_head" in name:
        return tensor * config["lm_head_multiplier"]
    if "embed_tokens" in name:
        return tensor * config["embedding_multiplier"]
    return tensor


def converted(arch, config, name, tensor):
    """(name, tensor) as the converter passes them to the map of names."""
    if arch == ARCH.FALCON_H1:
        tensor = folded(name, tensor, config)
    name = name.replace("mlp.shared_experts", "shared_mlp") if arch == ARCH.GRANITE_HYBRID else name
    if arch == ARCH.GRANITE_HYBRID and "shared_mlp" in name:
        part = "down" if "output_linear" in name else "gate" if "gate" in name else "up"
        kind = "mlp.shared_experts" if config["num_local_experts"] > 0 else "mlp"
        name = f"{name.split('shared_mlp')[0]}{kind}.{part}_proj.weight"
    if name.endswith(".dt_bias"):
        return name.replace(".dt_bias", ".dt_proj.bias"), tensor
    if "conv1d.weight" in name or "conv.conv.weight" in name:
        return name, tensor.squeeze(1)
    if name.endswith(".A_log"):
        return name, -torch.exp(tensor.float())[:, None]
    if name.endswith(".D"):
        return name, tensor[:, None]
    groups = config.get("mamba_n_groups", config.get("n_groups"))
    if name.endswith((".mamba.norm.weight", ".mixer.norm.weight")):
        return name, tensor.reshape(groups, -1)
    if name.endswith("expert_bias"):
        return name + ".bias", tensor
    if ".feed_forward.experts." in name:
        return name.removeprefix("model."), tensor
    if ".mixer.experts." in name:
        return name.replace(".mixer.", ".mlp.").replace("backbone.", "model."), tensor
    return name, tensor


def stays_f32(name):
    return not name.endswith(".weight") or "conv" in name or name.endswith("_norm.weight")
