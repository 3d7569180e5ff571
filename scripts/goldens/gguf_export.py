"""Writes a model as GGUF with the keys, tensor names and layouts that llama.cpp's converter produces."""

import math
import re

import gguf
import torch

from . import gguf_delta, gguf_latent, gguf_mamba, gpt_oss
from .gguf_mixtures import add_mixture, converted, is_router

FILE_TYPES = {
    "float32": (gguf.LlamaFileType.ALL_F32, gguf.GGMLQuantizationType.F32),
    "float16": (gguf.LlamaFileType.MOSTLY_F16, gguf.GGMLQuantizationType.F16),
    "bfloat16": (gguf.LlamaFileType.MOSTLY_BF16, gguf.GGMLQuantizationType.BF16),
}

ARCHITECTURES = {
    "LlamaForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "MistralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "MixtralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "Qwen2MoeForCausalLM": gguf.MODEL_ARCH.QWEN2MOE,
    "Qwen3MoeForCausalLM": gguf.MODEL_ARCH.QWEN3MOE,
    "OlmoeForCausalLM": gguf.MODEL_ARCH.OLMOE,
    "Glm4MoeForCausalLM": gguf.MODEL_ARCH.GLM4_MOE,
    "GraniteMoeForCausalLM": gguf.MODEL_ARCH.GRANITE_MOE,
    "GraniteMoeSharedForCausalLM": gguf.MODEL_ARCH.GRANITE_MOE,
    "Ernie4_5_MoeForCausalLM": gguf.MODEL_ARCH.ERNIE4_5_MOE,
    "MiniMaxM2ForCausalLM": gguf.MODEL_ARCH.MINIMAXM2,
    "PhimoeForCausalLM": gguf.MODEL_ARCH.PHIMOE,
    "Qwen2ForCausalLM": gguf.MODEL_ARCH.QWEN2,
    "Qwen3ForCausalLM": gguf.MODEL_ARCH.QWEN3,
    "Gemma2ForCausalLM": gguf.MODEL_ARCH.GEMMA2,
    "Gemma3ForCausalLM": gguf.MODEL_ARCH.GEMMA3,
    "Gemma3ForConditionalGeneration": gguf.MODEL_ARCH.GEMMA3,
    "Phi3ForCausalLM": gguf.MODEL_ARCH.PHI3,
    "ChatGLMModel": gguf.MODEL_ARCH.CHATGLM,
    "GlmForCausalLM": gguf.MODEL_ARCH.CHATGLM,
    "Glm4ForCausalLM": gguf.MODEL_ARCH.GLM4,
    "GptOssForCausalLM": gguf.MODEL_ARCH.GPT_OSS,
    "Ministral3ForCausalLM": gguf.MODEL_ARCH.MISTRAL3,
    "Mistral3ForConditionalGeneration": gguf.MODEL_ARCH.MISTRAL3,
    "SmolLM3ForCausalLM": gguf.MODEL_ARCH.SMOLLM3,
    "Olmo2ForCausalLM": gguf.MODEL_ARCH.OLMO2,
    "Olmo3ForCausalLM": gguf.MODEL_ARCH.OLMO2,
    "GraniteForCausalLM": gguf.MODEL_ARCH.GRANITE,
    "SeedOssForCausalLM": gguf.MODEL_ARCH.SEED_OSS,
    "HunYuanDenseV1ForCausalLM": gguf.MODEL_ARCH.HUNYUAN_DENSE,
    "Ernie4_5ForCausalLM": gguf.MODEL_ARCH.ERNIE4_5,
    "Exaone4ForCausalLM": gguf.MODEL_ARCH.EXAONE4,
    "GemmaForCausalLM": gguf.MODEL_ARCH.GEMMA,
    "Gemma4ForCausalLM": gguf.MODEL_ARCH.GEMMA4,
    "Gemma4ForConditionalGeneration": gguf.MODEL_ARCH.GEMMA4,
    "CohereForCausalLM": gguf.MODEL_ARCH.COMMAND_R,
    "Cohere2ForCausalLM": gguf.MODEL_ARCH.COHERE2,
    "Starcoder2ForCausalLM": gguf.MODEL_ARCH.STARCODER2,
    "GPT2LMHeadModel": gguf.MODEL_ARCH.GPT2,
    "GPTNeoXForCausalLM": gguf.MODEL_ARCH.GPTNEOX,
    "PhiForCausalLM": gguf.MODEL_ARCH.PHI2,
    "StableLmForCausalLM": gguf.MODEL_ARCH.STABLELM,
    "NemotronForCausalLM": gguf.MODEL_ARCH.NEMOTRON,
    "DeepseekV2ForCausalLM": gguf.MODEL_ARCH.DEEPSEEK2,
    "DeepseekV3ForCausalLM": gguf.MODEL_ARCH.DEEPSEEK2,
    "Glm4MoeLiteForCausalLM": gguf.MODEL_ARCH.DEEPSEEK2,
    "MiniCPM3ForCausalLM": gguf.MODEL_ARCH.MINICPM3,
    "Qwen3NextForCausalLM": gguf.MODEL_ARCH.QWEN3NEXT,
    "Qwen3_5ForCausalLM": gguf.MODEL_ARCH.QWEN35,
    "Qwen3_5ForConditionalGeneration": gguf.MODEL_ARCH.QWEN35,
    "Qwen3_5MoeForCausalLM": gguf.MODEL_ARCH.QWEN35MOE,
    "Mamba2ForCausalLM": gguf.MODEL_ARCH.MAMBA2,
    "Lfm2ForCausalLM": gguf.MODEL_ARCH.LFM2,
    "Lfm2MoeForCausalLM": gguf.MODEL_ARCH.LFM2MOE,
    "GraniteMoeHybridForCausalLM": gguf.MODEL_ARCH.GRANITE_HYBRID,
    "FalconH1ForCausalLM": gguf.MODEL_ARCH.FALCON_H1,
    "NemotronHForCausalLM": gguf.MODEL_ARCH.NEMOTRON_H,
}

# llama.cpp rotates adjacent pairs in these, so the converter permutes q and k.
PERMUTED = {gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.MISTRAL3, gguf.MODEL_ARCH.SMOLLM3, gguf.MODEL_ARCH.GRANITE,
            gguf.MODEL_ARCH.GRANITE_MOE, gguf.MODEL_ARCH.GRANITE_HYBRID}


def architecture_of(case, config):
    if "moe" in (config.get("layers_block_type") or []):
        return gguf.MODEL_ARCH.NEMOTRON_H_MOE
    return ARCHITECTURES[case.architecture]


def write_gguf(path, case, config, weights):
    """config: the dictionary of config.json; weights: name -> tensor as in model.safetensors."""
    config = config | config.get("text_config", {}) | {"older_gguf": case.older_gguf}
    arch = architecture_of(case, config)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    file_type, matrix_type = FILE_TYPES[case.dtype]
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name("golden")  # not the case's name: llama.cpp looks for names like phi3 here and expects their tokens
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    heads = arch in gguf_delta.ARCHITECTURES and any(name.startswith("mtp.") for name in weights)
    if heads:
        weights = gguf_delta.with_numbered_head(weights, config["num_hidden_layers"])
        writer.add_nextn_predict_layers(1)
    METADATA[arch](writer, config | ({"num_hidden_layers": config["num_hidden_layers"] + 1} if heads else {}))
    add_vocabulary(writer, config.get("padded_vocab_size", config.get("vocab_size")))
    for name, tensor in tensors(arch, config, weights):
        is_matrix = tensor.dim() > 1 and not is_router(name) and not gguf_delta.is_f32(name)
        qtype = matrix_type if is_matrix else gguf.GGMLQuantizationType.F32
        if arch in gguf_mamba.RECURRENT and gguf_mamba.stays_f32(name):
            qtype = gguf.GGMLQuantizationType.F32
        if case.quantized == "mxfp4" and is_matrix and name.startswith("blk."):
            qtype = gguf.GGMLQuantizationType.MXFP4
        if arch == gguf.MODEL_ARCH.GPT_OSS:
            qtype = gpt_oss.gguf_type(case, name, qtype)
        writer.add_tensor(name, gguf.quants.quantize(tensor.float().numpy(), qtype), raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer, size):
    """A vocabulary of single characters, so that the files are complete models."""
    printable = [chr(c) for c in range(0x21, 0x7F)]
    tokens = (["<unk>", "<s>", "</s>", "\u2581"] + printable + [f"[{i}]" for i in range(size)])[:size]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(size)])
    writer.add_token_types(kinds + [gguf.TokenType.NORMAL] * (size - len(kinds)))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)


def add_sizes(writer, config):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def add_head_dim(writer, config):
    if config.get("head_dim") is not None:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])


def add_rope(writer, parameters):
    writer.add_rope_freq_base(parameters["rope_theta"])
    if parameters["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(parameters["factor"])
    if parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(parameters["original_max_position_embeddings"])
        if "attention_factor" in parameters:
            writer.add_rope_scaling_yarn_attn_factor(parameters["attention_factor"])
        if "beta_fast" in parameters:
            writer.add_rope_scaling_yarn_beta_fast(parameters["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(parameters["beta_slow"])


def common_metadata(writer, config):
    add_sizes(writer, config)
    add_head_dim(writer, config)
    add_rope(writer, config["rope_parameters"])


def llama_metadata(writer, config):
    common_metadata(writer, config)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_dimension_count(head_dim(config))
    if "num_local_experts" in config:
        add_mixture(writer, config)


def gemma2_metadata(writer, config):
    add_sizes(writer, config)
    add_head_dim(writer, config)
    writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_sliding_window(config["sliding_window"])


def gemma3_metadata(writer, config):
    add_sizes(writer, config)
    add_head_dim(writer, config)
    add_rope(writer, config["rope_parameters"]["full_attention"])
    writer.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])


def phi3_metadata(writer, config):
    add_sizes(writer, config)
    rope = config["rope_parameters"]
    original = config["original_max_position_embeddings"]
    width = config["hidden_size"] // config["num_attention_heads"]
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(width * rope["partial_rotary_factor"]))
    writer.add_rope_scaling_orig_ctx_len(original)
    writer.add_sliding_window(config["sliding_window"] or 0)
    scale = config["max_position_embeddings"] / original
    if "long_factor" in rope:
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))


def chatglm_metadata(writer, config):
    if "num_layers" in config:
        width, base = config["kv_channels"], 10000.0 * config.get("rope_ratio", 1)
        config = config | {
            "num_hidden_layers": config["num_layers"],
            "max_position_embeddings": config["seq_length"],
            "intermediate_size": config["ffn_hidden_size"],
            "num_key_value_heads": config["multi_query_group_num"],
            "rms_norm_eps": config["layernorm_epsilon"],
        }
    else:
        width, base = config["head_dim"], config["rope_parameters"]["rope_theta"]
    add_sizes(writer, config)
    writer.add_rope_dimension_count(width // 2)
    writer.add_rope_freq_base(base)


def glm4_metadata(writer, config):
    common_metadata(writer, config)
    factor = config["rope_parameters"]["partial_rotary_factor"]
    writer.add_rope_dimension_count(int(config["head_dim"] * factor))


def ministral3_metadata(writer, config):
    llama_metadata(writer, config)
    rope = config["rope_parameters"]
    if "llama_4_scaling_beta" in rope:
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def add_windows(writer, config):
    if config.get("sliding_window") is not None:
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])


def olmo2_metadata(writer, config):
    add_sizes(writer, config)
    add_head_dim(writer, config)
    rope = config["rope_parameters"]
    add_rope(writer, rope.get("full_attention", rope))
    if "sliding_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    add_windows(writer, config)


def granite_metadata(writer, config):
    add_sizes(writer, config)
    add_rope(writer, config["rope_parameters"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_attention_scale(config["attention_multiplier"])
    writer.add_embedding_scale(config["embedding_multiplier"])
    writer.add_residual_scale(config["residual_multiplier"])
    writer.add_logit_scale(config["logits_scaling"])


def hunyuan_metadata(writer, config):
    rope = config["rope_parameters"]
    add_sizes(writer, config)
    add_head_dim(writer, config)
    if rope["rope_type"] != "dynamic":
        return add_rope(writer, rope)
    dim = config["head_dim"]
    writer.add_rope_freq_base(rope["rope_theta"] * rope["alpha"] ** (dim / (dim - 2)))
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    writer.add_rope_scaling_factor(1)
    writer.add_rope_scaling_orig_ctx_len(config["max_position_embeddings"])


def exaone4_metadata(writer, config):
    common_metadata(writer, config)
    writer.add_vocab_size(config["vocab_size"])
    add_windows(writer, config)


def gemma_metadata(writer, config):
    add_sizes(writer, config)
    add_head_dim(writer, config)


def gemma4_metadata(writer, config):
    full = next(iter(config["per_layer_config"].values()))
    windowed = [kind == "sliding_attention" for kind in config["layer_types"]]
    shared, layers = config["num_kv_shared_layers"], config["num_hidden_layers"]
    widths = [config["intermediate_size"] * (2 if i >= layers - shared else 1) for i in range(layers)]
    add_sizes(writer, config | {
        "intermediate_size": widths if config["use_double_wide_mlp"] else config["intermediate_size"],
        "num_key_value_heads": [config["num_key_value_heads"] if window else full["num_key_value_heads"]
                                for window in windowed] if "num_key_value_heads" in full
        else config["num_key_value_heads"],
    })
    writer.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern(windowed)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_key_length(full["head_dim"])
    writer.add_value_length(full["head_dim"])
    writer.add_key_length_swa(config["head_dim"])
    writer.add_value_length_swa(config["head_dim"])
    writer.add_rope_dimension_count(full["head_dim"])
    writer.add_rope_dimension_count_swa(config["head_dim"])
    if config["final_logit_softcapping"]:
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config["enable_moe_block"]:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["top_k_experts"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def add_layer_norm_sizes(writer, config, feed_forward, epsilon, kv_heads=None):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(config["num_attention_heads"])
    if kv_heads is not None:
        writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_eps(epsilon)


def add_partial_rope(writer, config):
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    writer.add_rope_dimension_count(int(config["rope_parameters"]["partial_rotary_factor"] * head_dim))


def cohere_metadata(writer, config):
    add_layer_norm_sizes(writer, config, config["intermediate_size"], config["layer_norm_eps"],
                         config["num_key_value_heads"])
    add_head_dim(writer, config)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_logit_scale(config["logit_scale"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)


def cohere2_metadata(writer, config):
    cohere_metadata(writer, config)
    writer.add_sliding_window(config["sliding_window"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])


def starcoder2_metadata(writer, config):
    add_layer_norm_sizes(writer, config, config["intermediate_size"], config["norm_epsilon"],
                         config["num_key_value_heads"])
    add_head_dim(writer, config)
    add_rope(writer, config["rope_parameters"])


def gpt2_metadata(writer, config):
    sizes = {"num_hidden_layers": config["n_layer"], "max_position_embeddings": config["n_positions"],
             "hidden_size": config["n_embd"], "num_attention_heads": config["n_head"]}
    add_layer_norm_sizes(writer, sizes, 4 * config["n_embd"], config["layer_norm_epsilon"])


def gpt_neox_metadata(writer, config):
    add_layer_norm_sizes(writer, config, config["intermediate_size"], config["layer_norm_eps"])
    add_partial_rope(writer, config)
    writer.add_parallel_residual(config["use_parallel_residual"])


def phi_metadata(writer, config):
    heads = config["num_attention_heads"]
    add_layer_norm_sizes(writer, config, 4 * config["hidden_size"], config["layer_norm_eps"], heads)
    writer.add_rope_dimension_count(int(config["rope_parameters"]["partial_rotary_factor"] * config["hidden_size"]) // heads)
    writer.add_add_bos_token(False)


def stablelm_metadata(writer, config):
    add_layer_norm_sizes(writer, config, config["intermediate_size"], config["layer_norm_eps"],
                         config["num_key_value_heads"])
    add_partial_rope(writer, config)
    writer.add_parallel_residual(config["use_parallel_residual"])


def nemotron_metadata(writer, config):
    add_layer_norm_sizes(writer, config, config["intermediate_size"], config["norm_eps"], config["num_key_value_heads"])
    add_head_dim(writer, config)
    rope = config["rope_parameters"]
    writer.add_layer_norm_rms_eps(config["norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(rope["partial_rotary_factor"] * config["hidden_size"]) // config["num_attention_heads"])
    if "factor" in rope:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    else:
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)


def glm4_moe_metadata(writer, config):
    # Files count the layer that predicts a further token, whose tensors are not needed.
    glm4_metadata(writer, config | {"num_hidden_layers": config["num_hidden_layers"] + 1})
    writer.add_nextn_predict_layers(1)


def minimax_metadata(writer, config):
    common_metadata(writer, config)
    writer.add_rope_dimension_count(int(config["head_dim"] * config["rope_parameters"]["partial_rotary_factor"]))


def phimoe_metadata(writer, config):
    common_metadata(writer, config)
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])


def mixture(dense):
    def metadata(writer, config):
        dense(writer, config)
        add_mixture(writer, config)

    return metadata


def gpt_oss_metadata(writer, config):
    common_metadata(writer, config)
    gpt_oss.add_experts(writer, config)


def deepseek2_metadata(writer, config):
    gguf_latent.add_deepseek2(writer, config, add_sizes, add_rope)


def minicpm3_metadata(writer, config):
    gguf_latent.add_minicpm3(writer, config, add_sizes)


def delta_metadata(writer, config):
    common_metadata(writer, {"intermediate_size": 0} | config)
    gguf_delta.add_metadata(writer, config)


METADATA = {
    gguf.MODEL_ARCH.DEEPSEEK2: deepseek2_metadata,
    gguf.MODEL_ARCH.MINICPM3: minicpm3_metadata,
    gguf.MODEL_ARCH.LLAMA: llama_metadata,
    gguf.MODEL_ARCH.QWEN2: common_metadata,
    gguf.MODEL_ARCH.QWEN2MOE: mixture(common_metadata),
    gguf.MODEL_ARCH.QWEN3MOE: mixture(common_metadata),
    gguf.MODEL_ARCH.OLMOE: mixture(common_metadata),
    gguf.MODEL_ARCH.GLM4_MOE: mixture(glm4_moe_metadata),
    gguf.MODEL_ARCH.GRANITE_MOE: mixture(granite_metadata),
    gguf.MODEL_ARCH.ERNIE4_5_MOE: mixture(common_metadata),
    gguf.MODEL_ARCH.MINIMAXM2: mixture(minimax_metadata),
    gguf.MODEL_ARCH.PHIMOE: mixture(phimoe_metadata),
    gguf.MODEL_ARCH.QWEN3: common_metadata,
    gguf.MODEL_ARCH.GEMMA2: gemma2_metadata,
    gguf.MODEL_ARCH.GEMMA3: gemma3_metadata,
    gguf.MODEL_ARCH.PHI3: phi3_metadata,
    gguf.MODEL_ARCH.CHATGLM: chatglm_metadata,
    gguf.MODEL_ARCH.GLM4: glm4_metadata,
    gguf.MODEL_ARCH.GPT_OSS: gpt_oss_metadata,
    gguf.MODEL_ARCH.MISTRAL3: ministral3_metadata,
    gguf.MODEL_ARCH.SMOLLM3: llama_metadata,
    gguf.MODEL_ARCH.OLMO2: olmo2_metadata,
    gguf.MODEL_ARCH.GRANITE: granite_metadata,
    gguf.MODEL_ARCH.SEED_OSS: common_metadata,
    gguf.MODEL_ARCH.HUNYUAN_DENSE: hunyuan_metadata,
    gguf.MODEL_ARCH.ERNIE4_5: common_metadata,
    gguf.MODEL_ARCH.EXAONE4: exaone4_metadata,
    gguf.MODEL_ARCH.GEMMA: gemma_metadata,
    gguf.MODEL_ARCH.GEMMA4: gemma4_metadata,
    gguf.MODEL_ARCH.COMMAND_R: cohere_metadata,
    gguf.MODEL_ARCH.COHERE2: cohere2_metadata,
    gguf.MODEL_ARCH.STARCODER2: starcoder2_metadata,
    gguf.MODEL_ARCH.GPT2: gpt2_metadata,
    gguf.MODEL_ARCH.GPTNEOX: gpt_neox_metadata,
    gguf.MODEL_ARCH.PHI2: phi_metadata,
    gguf.MODEL_ARCH.STABLELM: stablelm_metadata,
    gguf.MODEL_ARCH.NEMOTRON: nemotron_metadata,
    gguf.MODEL_ARCH.QWEN3NEXT: mixture(delta_metadata),
    gguf.MODEL_ARCH.QWEN35: delta_metadata,
    gguf.MODEL_ARCH.QWEN35MOE: mixture(delta_metadata),
} | gguf_mamba.METADATA


STORED_MINUS_ONE = (gguf.MODEL_ARCH.GEMMA, gguf.MODEL_ARCH.GEMMA2, gguf.MODEL_ARCH.GEMMA3, gguf.MODEL_ARCH.NEMOTRON)


def stacked_head_norms(weights):
    """StableLM's norms of q and k: one tensor for each head in Hugging Face, one for all in GGUF."""
    heads = {}
    for name, tensor in weights.items():
        stem, found, rest = name.partition(".norms.")
        heads.setdefault(stem + ".weight" if found else name, {})[int(rest.split(".")[0]) if found else 0] = tensor
        if found:
            heads[stem + ".weight"]["stacked"] = True
    return {name: torch.stack([t[i] for i in range(len(t) - 1)]) if "stacked" in t else t[0] for name, t in heads.items()}


def tensors(arch, config, weights):
    """(GGUF name, tensor) of all weights, and of the rope factors that GGUF keeps as tensors."""
    yield from rope_factors(config)
    layers = len(config.get("layers_block_type") or []) or config.get("num_hidden_layers", config.get("num_layers", config.get("n_layer")))
    if arch == gguf.MODEL_ARCH.STABLELM:
        weights = stacked_head_norms(weights)
    if arch == gguf.MODEL_ARCH.DEEPSEEK2:
        weights = gguf_latent.divided(weights, config)
    names = gguf.get_tensor_name_map(arch, layers + 1)  # one more: a layer that predicts a further token
    for name, tensor in converted(weights).items():
        if arch == gguf.MODEL_ARCH.GPT_OSS and (own := gpt_oss.gguf_tensors(name, tensor)):
            yield from own
            continue
        if "vision_tower" in name or "embed_vision" in name or "multi_modal_projector" in name or "inv_freq" in name:
            continue
        if "model.visual." in name:
            continue
        name = name.replace("language_model.model.", "model.").removeprefix("transformer.")
        name = name.replace("model.language_model.", "model.").replace("language_model.lm_head.", "lm_head.")
        if arch in gguf_mamba.RECURRENT:
            name, tensor = gguf_mamba.converted(arch, config, name, tensor)
        if arch in PERMUTED:
            tensor = permuted(name, tensor, config)
        if name.endswith("layer_scalar"):
            name += ".weight"
        if arch == gguf.MODEL_ARCH.GEMMA4 and (scale := gemma4_router_scale(name)):
            yield scale, tensor
            continue
        if arch == gguf.MODEL_ARCH.GPT2 and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            tensor = tensor.T.contiguous()
        if arch == gguf.MODEL_ARCH.GPTNEOX and "query_key_value" in name:
            tensor = tensor.unflatten(0, (config["num_attention_heads"], 3, -1)).transpose(0, 1).flatten(0, 2)
        if arch in STORED_MINUS_ONE and name.endswith("norm.weight"):
            # These models multiply by 1 + weight; GGUF stores the sum. The converter widens bf16 first.
            tensor = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor) + 1
        own = gguf_delta.tensors(arch, config, name, tensor) if arch in gguf_delta.ARCHITECTURES else [(name, tensor)]
        for part, converted_part in own:
            # Tensors of stacked experts have no suffix in Hugging Face files.
            suffix = "" if part.endswith((".weight", ".bias")) or not part.endswith("_proj") else ".weight"
            yield nextn_name(part) or names.get_name(part + suffix, try_suffixes=(".weight", ".bias")), converted_part


NEXTN = re.compile(r"model\.layers\.(\d+)\.(eh_proj|enorm|hnorm|embed_tokens|shared_head\.norm|shared_head\.head)\.weight")


def nextn_name(name):
    """Tensors of a head that predicts a further token, besides those of its layer."""
    found = NEXTN.fullmatch(name)
    return f"blk.{found[1]}.nextn.{found[2].replace('.', '_')}.weight" if found else None


def gemma4_router_scale(name):
    """Factors of the router's input and of the experts' weights, which GGUF names after the matrices behind them."""
    for own, other in ((".router.scale", "ffn_gate_inp.scale"), (".router.per_expert_scale", "ffn_down_exps.scale")):
        if name.endswith(own):
            return f"blk.{name.split('.layers.')[1].split('.')[0]}.{other}"
    return None


def permuted(name, tensor, config):
    """llama's GGUF rotates adjacent pairs; Hugging Face pairs an element with the one half a head away."""
    for part, heads in (("q_proj", config["num_attention_heads"]), ("k_proj", config["num_key_value_heads"])):
        if part in name:
            return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
    return tensor


def rope_factors(config):
    rope = config.get("rope_parameters", {})
    if "long_factor" in rope:
        yield "rope_factors_long.weight", torch.tensor(rope["long_factor"])
        yield "rope_factors_short.weight", torch.tensor(rope["short_factor"])
    if rope.get("full_attention", {}).get("rope_type") == "proportional":
        half = next(iter(config["per_layer_config"].values()))["head_dim"] // 2
        rotating = int(rope["full_attention"]["partial_rotary_factor"] * half)
        yield "rope_freqs.weight", torch.tensor([1.0] * rotating + [1e30] * (half - rotating))
    if rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", llama3_factors(rope, head_dim(config))


def llama3_factors(rope, head_dim):
    """The divisor of each frequency: 1 for short waves, factor for long ones, interpolated between."""
    turns = rope["original_max_position_embeddings"] / (2 * math.pi)
    turns = turns / rope["rope_theta"] ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    kept = (turns - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    kept = kept.clamp(0, 1)
    return 1 / ((1 - kept) / rope["factor"] + kept)
