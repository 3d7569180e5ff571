"""Writes an encoder as GGUF with the keys, tensor names and layouts that llama.cpp's converter produces."""

import re

import gguf

ARCHITECTURES = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
POOLING = {"mean": gguf.PoolingType.MEAN, "cls": gguf.PoolingType.CLS, "lasttoken": gguf.PoolingType.LAST}


def write_gguf(path, case, config, weights, vocabulary):
    """config: the dictionary of config.json; weights: name -> tensor; vocabulary: the tokens of WordPiece, or None."""
    writer = gguf.GGUFWriter(path, case.gguf)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name("golden")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_metadata(writer, case, config)
    add_vocabulary(writer, config["vocab_size"], vocabulary)
    names = gguf.get_tensor_name_map(ARCHITECTURES[case.gguf], config["num_hidden_layers"])
    for name, tensor in renamed(case, config, weights):
        mapped = names.get_name(name, try_suffixes=(".weight", ".bias")) or name
        writer.add_tensor(mapped, tensor.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def position_offset(case, config):
    return config["pad_token_id"] + 1 if "Roberta" in case.architecture else 0


def add_metadata(writer, case, config):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"] - position_offset(case, config))
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    if "num_key_value_heads" in config:
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    else:
        writer.add_layer_norm_eps(config.get("layer_norm_eps", config.get("norm_eps")))
        writer.add_causal_attention(False)
    if case.pooling:
        writer.add_pooling_type(POOLING[case.pooling])
    elif case.gguf == "qwen3":
        writer.add_pooling_type(gguf.PoolingType.RANK)
    if (rope := config.get("rope_parameters")) is not None:
        writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
        if "sliding_attention" in rope:
            writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    if case.gguf == "modern-bert":
        writer.add_sliding_window(config["local_attention"])
        writer.add_sliding_window_pattern(3)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    if case.gguf == "gemma-embedding":
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])


def add_vocabulary(writer, size, vocabulary):
    if vocabulary is None:
        tokens = [f"[{i}]" for i in range(size)]
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(tokens)
        writer.add_token_scores([-float(i) for i in range(size)])
        writer.add_token_types([gguf.TokenType.NORMAL] * size)
        return
    # As BERT's converter: words begin with a phantom space, continuations lose their "##".
    special = [token.startswith("[") for token in vocabulary]
    phantom = [t if s else t[2:] if t.startswith("##") else "\u2581" + t for t, s in zip(vocabulary, special)]
    writer.add_token_type_count(2)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(phantom)
    writer.add_token_types([gguf.TokenType.CONTROL if s else gguf.TokenType.NORMAL for s in special])
    writer.add_unk_token_id(1)
    writer.add_sep_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_bos_token_id(2)
    writer.add_mask_token_id(4)


def renamed(case, config, weights):
    """The tensors under the Hugging Face names that the converter maps, with its changes."""
    offset = position_offset(case, config)
    for name, tensor in weights.items():
        name = re.sub(r"^(bert|roberta)\.", "", name)
        if case.gguf == "modern-bert":
            name = re.sub(r"^model\.", "", name)
        if re.search(r"position_ids$|^pooler\.", name):
            continue
        if name == "embeddings.position_embeddings.weight":
            tensor = tensor[offset:]
        if case.gguf == "modern-bert" and name.startswith("classifier."):
            name = name.replace("classifier.", "classifier.out_proj.")
        if case.gguf == "gemma-embedding" and name.endswith("norm.weight"):
            tensor = tensor + 1
        if case.gguf in ("gemma-embedding", "qwen3") and not name.startswith(("model.", "score.", "2_", "3_")):
            name = "model." + name
        name = re.sub(r"^2_Dense\.linear\.", "dense_2.", re.sub(r"^3_Dense\.linear\.", "dense_3.", name))
        yield name.replace("score.weight", "cls.output.weight"), tensor
