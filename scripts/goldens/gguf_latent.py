"""What llama.cpp's converter does to multi-head latent attention."""

import gguf


def add_deepseek2(writer, config, add_sizes, add_rope):
    older = config["older_gguf"]  # files written before the converter divided kv_b_proj
    latent, rotary = config["kv_lora_rank"], config["qk_rope_head_dim"]
    query = config["qk_nope_head_dim"] + rotary
    add_sizes(writer, config | ({} if older else {"num_key_value_heads": 1}))
    add_rope(writer, {key: value for key, value in config["rope_parameters"].items() if "mscale" not in key})
    writer.add_vocab_size(config["vocab_size"])
    writer.add_leading_dense_block_count(leading_dense(config))
    if config.get("q_lora_rank"):
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(latent)
    writer.add_key_length(query if older else latent + rotary)
    writer.add_value_length(config["v_head_dim"] if older else latent)
    if not older:
        writer.add_key_length_mla(query)
        writer.add_value_length_mla(config["v_head_dim"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    if config.get("norm_topk_prob"):
        writer.add_expert_weights_norm(True)
    if config.get("n_group"):
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    if config["model_type"] != "deepseek_v2":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    elif not older:
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)
    writer.add_rope_dimension_count(rotary)
    if (mscale := config["rope_parameters"].get("mscale_all_dim")) is not None:
        writer.add_rope_scaling_yarn_log_mul(0.1 * mscale)


def leading_dense(config):
    if "mlp_layer_types" in config:
        return config["mlp_layer_types"].index("sparse")
    return config["first_k_dense_replace"]


def add_minicpm3(writer, config, add_sizes):
    add_sizes(writer, config)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(config["kv_lora_rank"])
    writer.add_key_length(config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
    writer.add_rope_dimension_count(config["qk_rope_head_dim"])


def divided(weights, config):
    """kv_b_proj as k_b_proj, transposed, and v_b_proj, for each head."""
    plain = {}
    for name, tensor in weights.items():
        if not name.endswith("kv_b_proj.weight") or config["older_gguf"]:
            plain[name] = tensor
            continue
        sizes = [config["qk_nope_head_dim"], config["v_head_dim"]]
        keys, values = tensor.unflatten(0, (config["num_attention_heads"], sum(sizes))).split(sizes, dim=1)
        plain[name.replace("kv_b_proj", "k_b_proj")] = keys.transpose(1, 2).contiguous()
        plain[name.replace("kv_b_proj", "v_b_proj")] = values.contiguous()
    return plain
