"""config.json as transformers 4 wrote it: rope parameters at the top level, torch_dtype, no layer_types."""

import copy


def config_v4(config, case):
    old = copy.deepcopy(config)
    if "text_config" in old:
        old["text_config"] = config_v4(old["text_config"], case)
    if "dtype" in old:
        old["torch_dtype"] = old.pop("dtype")
    if "transformers_version" in old:
        old["transformers_version"] = "4.50.0"
    if old.get("model_type") == "gemma4_text":
        return gemma4_with_global_keys(old)
    if "rope_parameters" in old:
        old |= rope_v4(old.pop("rope_parameters"), old, case)
    if not explicit_layer_types(old):
        old.pop("layer_types", None)
    if old.get("use_sliding_window") is False:
        old["sliding_window"] = 8  # a window that is present in the file but unused
    old.pop("_sliding_window_pattern", None)
    if old.get("model_type") == "qwen3_moe":
        old["num_experts"] = old.pop("num_local_experts")
    if old.get("model_type") == "minimax_m2":
        old["rotary_dim"] = int(old.pop("partial_rotary_factor") * old["head_dim"])
    for key in case.drop_in_v4:
        old.pop(key, None)
    return old


def gemma4_with_global_keys(config):
    """The first configs of Gemma 4 have a second key instead of per_layer_config."""
    layers = list(config.pop("per_layer_config").values())
    assert all(layer == layers[0] for layer in layers)
    config["global_head_dim"] = layers[0]["head_dim"]
    config["num_global_key_value_heads"] = layers[0].get("num_key_value_heads")
    return config


def rope_v4(parameters, config, case):
    if "full_attention" in parameters:
        old = rope_v4(parameters["full_attention"], config, case)
        if config["model_type"] == "olmo3":  # its windowed layers always had this base
            assert parameters["sliding_attention"] == {"rope_type": "default", "rope_theta": 500000.0}
            return old
        return old | {"rope_local_base_freq": parameters["sliding_attention"]["rope_theta"]}
    scaling = copy.deepcopy(parameters)
    old = {"rope_theta": scaling.pop("rope_theta")}
    if "partial_rotary_factor" in scaling:
        old["partial_rotary_factor"] = scaling.pop("partial_rotary_factor")
    if config["model_type"] == "phi3":
        scaling.pop("original_max_position_embeddings", None)  # phi3 keeps it at the top level
    if config["model_type"] == "gpt_neox":
        old = {"rotary_emb_base": old["rope_theta"], "rotary_pct": old["partial_rotary_factor"]}
    kind = scaling.pop("rope_type")
    spelled = {"type": case.old_rope_type} if case.old_rope_type else {"rope_type": kind}
    return old | {"rope_scaling": None if kind == "default" else spelled | scaling}


def has_interval(config):
    """Whether every n-th layer has attention; stores n."""
    kinds = config["layer_types"]
    interval = kinds.index("full_attention") + 1
    if kinds != ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(len(kinds))]:
        return False
    config["full_attention_interval"] = interval
    return True


def explicit_layer_types(config):
    """Whether layer_types contains more information than the older keys; otherwise replaces it by those keys."""
    kinds = config.get("layer_types")
    if kinds is not None and config["model_type"].startswith(("qwen3_next", "qwen3_5")):
        return not has_interval(config)
    if kinds and not {"sliding_attention", "full_attention"}.issuperset(kinds):
        return True  # layers of other kinds than attention
    pattern = {"gemma3_text": 6, "gemma2": 2, "olmo3": 4, "exaone4": 4, "cohere2": 4, "gpt_oss": 2}.get(config["model_type"])
    if kinds is None or pattern is None:
        return False
    usual = ["full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(len(kinds))]
    if kinds != usual:
        return True
    if pattern != 2:
        config["sliding_window_pattern"] = pattern
    return False
