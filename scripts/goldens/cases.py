"""The cases: one tiny model each, named after the feature it tests."""

from dataclasses import dataclass, field

VOCABULARY = 96
GREEDY_TOKENS = 64


@dataclass
class Case:
    name: str
    architecture: str  # config.json's architectures[0]
    config: dict
    covers: str
    matters: list = field(default_factory=list)  # config changes that must change the logits; otherwise the case tests nothing
    prompt: int = 32
    rows: list | None = None  # positions whose logits are stored; None: all
    dtype: str = "float32"
    gguf: bool = True
    notes: str = ""
    old_rope_type: str = ""  # config_v4.json has rope_scaling.type with this value instead of rope_scaling.rope_type
    drop_in_v4: tuple = ()  # keys that config_v4.json omits because they have their default value
    rename: tuple = ()  # (from, to) prefix in model.safetensors
    shards: bool = False
    older_gguf: bool = False  # the form of the file that older converters wrote (gguf_latent.py)
    noise: float = 1e-5  # most distance of f32 from f64, relative to the largest logit
    # "fp8": the folder's matrices, "mxfp4": GGUF's (quantization.py), "mxfp4_experts": both (gpt_oss.py)
    quantized: str = ""


SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}

SMALL = SPECIAL | {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}

# Heads wide enough that rope scaling covers high, middle and low frequencies.
WIDE_HEADS = SMALL | {"num_attention_heads": 2, "num_key_value_heads": 1}


def rope(kind="default", theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta} | more}


NO_SCALING = rope()
NO_WINDOW_IN_GGUF = "GGUF of this architecture has no key for the sliding window"
NO_QUERY_SCALE_IN_GGUF = "GGUF has no key for query_pre_attn_scalar"


def llama(name, covers, config=SMALL, matters=(), **more):
    return Case(f"llama_{name}", "LlamaForCausalLM", config, covers, list(matters), **more)


LLAMA = [
    llama(
        "gqa",
        "grouped-query attention, the plain model",
        SMALL | {"hidden_size": 64, "intermediate_size": 96},
        matters=[rope(theta=500.0)],
    ),
    llama(
        "mqa_tied",
        "one KV head, output tied to the embedding",
        SMALL | {"num_key_value_heads": 1, "tie_word_embeddings": True},
    ),
    llama(
        "mha",
        "as many KV heads as heads; config_v4.json is as short as Llama-1's",
        SMALL | {"num_key_value_heads": 4},
        drop_in_v4=("num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "attention_bias", "mlp_bias"),
    ),
    llama("head_dim", "head_dim is not hidden_size / heads", SMALL | {"head_dim": 12}),
    llama("bias", "biases on attention and MLP", SMALL | {"attention_bias": True, "mlp_bias": True}),
    llama(
        "odd_shapes",
        "no dimension is a multiple of a SIMD width",
        SMALL | {"vocab_size": 101, "hidden_size": 42, "num_attention_heads": 3, "num_key_value_heads": 1,
                 "intermediate_size": 53, "rms_norm_eps": 1e-3},
        matters=[{"rms_norm_eps": 1e-6}],
    ),
    llama("sharded", "weights in several safetensors files with an index", shards=True, gguf=False,
          notes="the sharding belongs to the Hugging Face folder"),
    llama("f16", "f16 storage", dtype="float16"),
    llama(
        "bf16_smollm2",
        "bf16 storage; SmolLM2's shape: three heads to a KV head, tied, large rope_theta",
        SMALL | rope(theta=100000.0)
        | {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 96,
           "tie_word_embeddings": True},
        dtype="bfloat16",
    ),
    llama(
        "long_positions",
        "two thousand positions",
        WIDE_HEADS | {"vocab_size": 64, "max_position_embeddings": 4096},
        prompt=2100,
        rows=[0, 1, 511, 512, 1023, 1024, 1535, 2047, 2048] + list(range(2084, 2100)),
    ),
    llama(
        "rope_linear",
        "linear rope scaling",
        WIDE_HEADS | rope("linear", factor=4.0),
        matters=[NO_SCALING],
        prompt=48,
        old_rope_type="linear",
    ),
    llama(
        "rope_llama3",
        "Llama-3.1 rope scaling: kept, blended and divided frequencies (rope_freqs.weight in GGUF)",
        WIDE_HEADS | {"tie_word_embeddings": True}
        | rope("llama3", 5000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=64),
        matters=[rope(theta=5000.0)],
        prompt=80,
    ),
    llama(
        "rope_yarn",
        "YaRN with the default attention factor",
        WIDE_HEADS | rope("yarn", factor=4.0, original_max_position_embeddings=64),
        matters=[NO_SCALING, rope("yarn", factor=4.0, original_max_position_embeddings=64, attention_factor=1.0)],
        prompt=80,
        old_rope_type="yarn",
    ),
    llama(
        "rope_yarn_attention_factor",
        "YaRN with its own attention_factor, beta_fast and beta_slow",
        WIDE_HEADS | rope("yarn", factor=4.0, original_max_position_embeddings=64, attention_factor=1.3,
                          beta_fast=8.0, beta_slow=2.0),
        matters=[
            rope("yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=8.0, beta_slow=2.0),
            rope("yarn", factor=4.0, original_max_position_embeddings=64, attention_factor=1.3),
        ],
        prompt=80,
        notes="llama.cpp reads none of these three keys in this architecture; Hugging Face honours them",
    ),
    llama(
        "rope_yarn_mscale",
        "YaRN with mscale, mscale_all_dim and without truncation",
        WIDE_HEADS | rope("yarn", factor=4.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=0.5,
                          truncate=False),
        matters=[rope("yarn", factor=4.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=0.5),
                 rope("yarn", factor=4.0, original_max_position_embeddings=64, truncate=False)],
        prompt=80,
        gguf=False,
        notes="GGUF has no keys for mscale and truncate in this architecture",
    ),
    llama(
        "rope_longrope",
        "longrope outside of Phi-3, its attention factor from the explicit factor",
        WIDE_HEADS | rope("longrope", factor=4.0, original_max_position_embeddings=16,
                          short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
                          long_factor=[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
        matters=[NO_SCALING],
        prompt=48,
        gguf=False,
        notes="the converter writes no factors for this architecture; the whole run lies beyond "
              "original_max_position_embeddings",
    ),
    llama(
        "rope_dynamic",
        "dynamic NTK within max_position_embeddings, where it changes nothing",
        WIDE_HEADS | rope("dynamic", factor=4.0),
        prompt=48,
        gguf=False,
        notes="beyond max_position_embeddings the frequencies depend on the length and GGUF has no key for them",
    ),
    Case(
        "mistral_sliding_window",
        "MistralForCausalLM",
        SMALL | {"sliding_window": 12},
        "a sliding window shorter than the prompt",
        matters=[{"sliding_window": None}, {"sliding_window": 11}, {"sliding_window": 13}],
        prompt=40,
        gguf=False,
        notes=NO_WINDOW_IN_GGUF,
    ),
    Case(
        "mistral_nemo",
        "MistralForCausalLM",
        SMALL | rope(theta=1000000.0) | {"sliding_window": None, "head_dim": 16},
        "no sliding window, head_dim is not hidden_size / heads",
    ),
]

QWEN = [
    Case("qwen2", "Qwen2ForCausalLM", SMALL | rope(theta=1000000.0), "biases on q, k and v only; own output matrix"),
    Case(
        "qwen2_tied",
        "Qwen2ForCausalLM",
        SMALL | {"tie_word_embeddings": True, "rms_norm_eps": 1e-6},
        "output tied to the embedding",
    ),
    Case(
        "qwen2_sliding_window",
        "Qwen2ForCausalLM",
        SMALL | {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1, "num_hidden_layers": 3},
        "full attention below max_window_layers, sliding windows above",
        matters=[{"use_sliding_window": False}, {"max_window_layers": 0}, {"max_window_layers": 2}],
        prompt=40,
        gguf=False,
        notes=NO_WINDOW_IN_GGUF,
    ),
    Case(
        "qwen2_yarn",
        "Qwen2ForCausalLM",
        WIDE_HEADS | rope("yarn", 100000.0, factor=4.0, original_max_position_embeddings=64),
        "YaRN as Qwen2.5 documents it for long inputs",
        matters=[rope(theta=100000.0)],
        prompt=80,
        old_rope_type="yarn",
    ),
    Case(
        "qwen3",
        "Qwen3ForCausalLM",
        SMALL | {"head_dim": 16, "tie_word_embeddings": True, "rms_norm_eps": 1e-6},
        "QK-norm, explicit head_dim, tied",
    ),
    Case(
        "qwen3_yarn",
        "Qwen3ForCausalLM",
        SMALL | rope("yarn", 100000.0, factor=4.0, original_max_position_embeddings=64) | {"head_dim": 16},
        "QK-norm before a scaled rope, own output matrix",
        matters=[rope(theta=100000.0)],
        prompt=80,
    ),
    Case(
        "qwen3_sliding_window",
        "Qwen3ForCausalLM",
        SMALL | {"head_dim": 16, "use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1,
                 "num_hidden_layers": 3},
        "QK-norm, full attention below max_window_layers, sliding windows above",
        matters=[{"use_sliding_window": False}, {"max_window_layers": 0}, {"max_window_layers": 2}],
        prompt=40,
        gguf=False,
        notes=NO_WINDOW_IN_GGUF,
    ),
]

GEMMA2_CONFIG = SMALL | {
    "num_hidden_layers": 4,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window": 12,
    "attn_logit_softcapping": 4.0,
    "final_logit_softcapping": 1.0,
    "rms_norm_eps": 1e-6,
}

GEMMA3_CONFIG = SMALL | {
    "num_key_value_heads": 1,
    "intermediate_size": 48,
    "num_hidden_layers": 7,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window": 12,
    "rms_norm_eps": 1e-6,
}


def gemma_rope(local=100.0, **full):
    return {
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
            "full_attention": {"rope_type": "default", "rope_theta": 10000.0} | full,
        }
    }


GEMMA3_LINEAR = GEMMA3_CONFIG | gemma_rope(rope_type="linear", factor=8.0)

VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}


def gemma3_multimodal(text):
    return {
        "text_config": text,
        "vision_config": VISION,
        "mm_tokens_per_image": 1,
        "boi_token_index": 93,
        "eoi_token_index": 94,
        "image_token_index": 95,
    }


GEMMA = [
    Case(
        "gemma2",
        "Gemma2ForCausalLM",
        GEMMA2_CONFIG,
        "both soft-caps, alternating sliding windows, norms before and after, scaled embedding, GeLU",
        matters=[
            {"attn_logit_softcapping": None},
            {"final_logit_softcapping": None},
            {"sliding_window": 64},
            {"layer_types": ["full_attention", "sliding_attention"] * 2},
        ],
        prompt=40,
    ),
    Case(
        "gemma2_query_scale",
        "Gemma2ForCausalLM",
        GEMMA2_CONFIG | {"query_pre_attn_scalar": 9},
        "query_pre_attn_scalar other than head_dim",
        matters=[{"query_pre_attn_scalar": 16}],
        prompt=40,
        gguf=False,
        notes=NO_QUERY_SCALE_IN_GGUF,
    ),
    Case(
        "gemma3",
        "Gemma3ForCausalLM",
        GEMMA3_CONFIG | gemma_rope(),
        "QK-norm, five sliding layers to one full layer, a rope of its own for each kind",
        matters=[gemma_rope(local=10000.0), gemma_rope(rope_theta=100.0), {"sliding_window": 64}],
        prompt=40,
    ),
    Case(
        "gemma3_query_scale",
        "Gemma3ForCausalLM",
        GEMMA3_LINEAR
        | {"num_hidden_layers": 3, "query_pre_attn_scalar": 9, "final_logit_softcapping": 1.0,
           "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        "query_pre_attn_scalar other than head_dim, a soft-cap on the logits, explicit layer_types",
        matters=[{"query_pre_attn_scalar": 16}, {"final_logit_softcapping": None},
                 {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}],
        prompt=40,
        gguf=False,
        notes=NO_QUERY_SCALE_IN_GGUF,
    ),
    Case(
        "gemma3_multimodal",
        "Gemma3ForConditionalGeneration",
        gemma3_multimodal(GEMMA3_LINEAR),
        "the text model inside of a multimodal folder (language_model.model.*), linear rope scaling on full layers",
        prompt=40,
        rename=(("model.language_model.", "language_model.model."), ("model.vision_tower.", "vision_tower."),
                ("model.multi_modal_projector.", "multi_modal_projector.")),
        notes="the GGUF holds the text model only, as the converter writes it",
    ),
    Case(
        "gemma3_multimodal_new_names",
        "Gemma3ForConditionalGeneration",
        gemma3_multimodal(GEMMA3_LINEAR | {"num_hidden_layers": 2,
                                           "layer_types": ["sliding_attention", "full_attention"]}),
        "the same with the names that newer versions of transformers save (model.language_model.*)",
        prompt=40,
        rename=(("language_model.model.", "model.language_model."), ("vision_tower.", "model.vision_tower."),
                ("multi_modal_projector.", "model.multi_modal_projector.")),
        gguf=False,
        notes="GGUF has no key for such a pattern of layers",
    ),
]

PHI3_ROPE = {
    "original_max_position_embeddings": 128,
    "short_factor": [1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6],
    "long_factor": [1.1, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
}
PHI3_CONFIG = WIDE_HEADS | {"original_max_position_embeddings": 128, "tie_word_embeddings": False}


def phi3_longrope(long=True, **more):
    parameters = PHI3_ROPE | more
    parameters |= {} if long else {"long_factor": parameters["short_factor"]}
    return rope("longrope", partial_rotary_factor=1.0, **parameters)


def factors(name, count):
    return PHI3_ROPE[name][:count]


PHI3 = [
    Case(
        "phi3_longrope_short",
        "Phi3ForCausalLM",
        PHI3_CONFIG | phi3_longrope(),
        "fused qkv and gate_up, longrope below original_max_position_embeddings: short factors",
        matters=[phi3_longrope(short_factor=[1.0] * 8), phi3_longrope(attention_factor=1.0)],
        prompt=48,
    ),
    Case(
        "phi3_longrope_long",
        "Phi3ForCausalLM",
        PHI3_CONFIG | phi3_longrope(),
        "longrope with a prompt beyond original_max_position_embeddings: long factors at every position",
        matters=[phi3_longrope(long=False)],
        prompt=160,
        old_rope_type="longrope",
    ),
    Case(
        "phi3_longrope_crossing",
        "Phi3ForCausalLM",
        PHI3_CONFIG | phi3_longrope(),
        "greedy decoding across original_max_position_embeddings",
        prompt=100,
        notes="once the sequence is longer than original_max_position_embeddings, Hugging Face drops the cache and "
              "computes all positions again with the long factors",
    ),
    Case(
        "phi3_partial_rotary",
        "Phi3ForCausalLM",
        PHI3_CONFIG
        | rope("longrope", partial_rotary_factor=0.75, original_max_position_embeddings=128,
               short_factor=factors("short_factor", 6), long_factor=factors("long_factor", 6))
        | {"tie_word_embeddings": True},
        "Phi-4-mini: three quarters of each head rotate, tied",
        prompt=48,
    ),
    Case(
        "phi3_sliding_window",
        "Phi3ForCausalLM",
        SMALL | {"sliding_window": 12, "original_max_position_embeddings": 512},
        "Phi-3-mini-4k: plain rope and a sliding window",
        matters=[{"sliding_window": None}],
        prompt=40,
        notes="llama.cpp ignores the sliding window of phi3; Hugging Face honours it",
    ),
]

OPT_CONFIG = SPECIAL | {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "ffn_dim": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "dropout": 0.0,
    "pad_token_id": 0,
}
NO_OPT_IN_GGUF = "llama.cpp has no opt architecture"

OPT = [
    Case(
        "opt",
        "OPTForCausalLM",
        OPT_CONFIG,
        "learned positions with an offset of 2, layer norm with bias, ReLU, tied",
        gguf=False,
        notes=NO_OPT_IN_GGUF,
    ),
    Case(
        "opt_350m",
        "OPTForCausalLM",
        OPT_CONFIG | {"do_layer_norm_before": False, "word_embed_proj_dim": 20},
        "norms after the blocks, embedding narrower than the model with project_in and project_out",
        gguf=False,
        notes=NO_OPT_IN_GGUF,
    ),
    Case(
        "opt_350m_bf16",
        "OPTForCausalLM",
        OPT_CONFIG | {"do_layer_norm_before": False, "word_embed_proj_dim": 24},
        "the same in bf16: what goes into linear layers comes from no norm",
        dtype="bfloat16",
        gguf=False,
        notes=NO_OPT_IN_GGUF,
    ),
    Case(
        "opt_no_bias",
        "OPTForCausalLM",
        OPT_CONFIG | {"enable_bias": False, "layer_norm_elementwise_affine": False, "activation_function": "gelu",
                      "tie_word_embeddings": False},
        "Galactica: no biases, norms without weights, exact GeLU; own output matrix",
        matters=[{"activation_function": "relu"}],
        gguf=False,
        notes=NO_OPT_IN_GGUF,
    ),
]

CHATGLM_CONFIG = {
    "architectures": ["ChatGLMModel"],
    "model_type": "chatglm",
    "add_bias_linear": False,
    "add_qkv_bias": True,
    "apply_query_key_layer_scaling": True,
    "apply_residual_connection_post_layernorm": False,
    "attention_dropout": 0.0,
    "attention_softmax_in_fp32": True,
    "bias_dropout_fusion": True,
    "ffn_hidden_size": 64,
    "fp32_residual_connection": False,
    "hidden_dropout": 0.0,
    "hidden_size": 32,
    "kv_channels": 16,
    "layernorm_epsilon": 1e-05,
    "multi_query_attention": True,
    "multi_query_group_num": 1,
    "num_attention_heads": 2,
    "num_layers": 2,
    "original_rope": True,
    "padded_vocab_size": VOCABULARY,
    "post_layer_norm": True,
    "rmsnorm": True,
    "seq_length": 512,
    "use_cache": True,
    "torch_dtype": "float32",
    "transformers_version": "4.27.1",
    "tie_word_embeddings": False,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

GLM_ROPE = rope(partial_rotary_factor=0.5)
GLM4_CONFIG = SMALL | GLM_ROPE | {"head_dim": 8, "attention_bias": True}

CHATGLM = [
    Case(
        "chatglm2",
        "ChatGLMModel",
        CHATGLM_CONFIG,
        "fused query_key_value with bias, interleaved rope on half of each head, fused gate and up",
    ),
    Case(
        "chatglm2_groups",
        "ChatGLMModel",
        CHATGLM_CONFIG | {"num_attention_heads": 4, "kv_channels": 8, "multi_query_group_num": 2, "num_layers": 3},
        "several query groups",
    ),
    Case(
        "chatglm2_residual_after_norm",
        "ChatGLMModel",
        CHATGLM_CONFIG | {"apply_residual_connection_post_layernorm": True},
        "residuals taken after the norms",
        matters=[{"apply_residual_connection_post_layernorm": False}],
        gguf=False,
        notes="GGUF has no key for apply_residual_connection_post_layernorm",
    ),
    Case(
        "glm4_9b",
        "ChatGLMModel",
        CHATGLM_CONFIG
        | {"rope_ratio": 50, "layernorm_epsilon": 1.5625e-07, "original_rope": True, "vocab_size": VOCABULARY,
           "eos_token_id": [2], "transformers_version": "4.44.0", "torch_dtype": "float32"},
        "GLM-4-9B in the ChatGLM layout: rope_ratio multiplies the base",
        matters=[{"rope_ratio": 1}],
        prompt=48,
    ),
    Case(
        "glm",
        "GlmForCausalLM",
        SMALL | GLM_ROPE | {"head_dim": 8, "attention_bias": True},
        "GLM-4-9B-hf: separate q, k and v with bias, fused gate_up, interleaved partial rope",
    ),
    Case(
        "glm4_0414",
        "Glm4ForCausalLM",
        GLM4_CONFIG,
        "GLM-4-0414: norms before and after, interleaved partial rope",
        matters=[rope(partial_rotary_factor=0.25), rope(partial_rotary_factor=1.0)],
    ),
    Case(
        "glm4_0414_no_bias",
        "Glm4ForCausalLM",
        GLM4_CONFIG | {"attention_bias": False, "head_dim": 16},
        "the 32B's variant: no attention bias, head_dim is not hidden_size / heads",
    ),
]

CASES = LLAMA + QWEN + GEMMA + PHI3 + OPT + CHATGLM
