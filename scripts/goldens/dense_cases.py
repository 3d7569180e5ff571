"""Cases of the decoders with RMS norms that differ from Llama in a few places."""

from .cases import NO_WINDOW_IN_GGUF, VISION, Case, rope
from .cases import SMALL as USUAL

SMALL = USUAL | {"vocab_size": 80, "hidden_size": 24, "intermediate_size": 32}
WIDE_HEADS = SMALL | {"num_attention_heads": 2, "num_key_value_heads": 1}
FOUR_LAYERS = WIDE_HEADS | {"num_hidden_layers": 4}

MINISTRAL3_ROPE = {"factor": 16.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0,
                   "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4}
MINISTRAL3 = WIDE_HEADS | rope("yarn", **MINISTRAL3_ROPE) | {"head_dim": 16}
PIXTRAL = VISION | {"model_type": "pixtral", "head_dim": 4}
OLD_MISTRAL3_NAMES = (("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head."),
                      ("model.vision_tower.", "vision_tower."),
                      ("model.multi_modal_projector.", "multi_modal_projector."))


def mistral3(text):
    return {"text_config": text, "vision_config": PIXTRAL, "image_token_index": 79, "tie_word_embeddings": False}


MISTRAL3 = [
    Case(
        "ministral3",
        "Ministral3ForCausalLM",
        MINISTRAL3,
        "YaRN with equal mscales, queries scaled by position",
        matters=[rope("yarn", **(MINISTRAL3_ROPE | {"llama_4_scaling_beta": 0.0})),
                 rope("yarn", **(MINISTRAL3_ROPE | {"mscale": 2.0}))],
        prompt=48,
    ),
    Case(
        "mistral3_ministral3",
        "Mistral3ForConditionalGeneration",
        mistral3(MINISTRAL3 | {"model_type": "ministral3", "sliding_window": 12}),
        "Ministral 3 with a window inside of a multimodal folder (model.language_model.*)",
        prompt=40,
        gguf=False,
        notes=NO_WINDOW_IN_GGUF,
    ),
    Case(
        "mistral3_mistral",
        "Mistral3ForConditionalGeneration",
        mistral3(SMALL | {"model_type": "mistral", "sliding_window": None, "head_dim": 12}),
        "Mistral Small 3: the text model is a Mistral, with the names of older versions (language_model.model.*)",
        rename=OLD_MISTRAL3_NAMES,
    ),
]

SMOLLM3 = [
    Case(
        "smollm3",
        "SmolLM3ForCausalLM",
        FOUR_LAYERS | {"tie_word_embeddings": True} | rope(theta=2000000.0),
        "the fourth layer has no rope",
        matters=[{"no_rope_layers": [1] * 4}, {"no_rope_layers": [0, 1, 1, 1]}],
        drop_in_v4=("no_rope_layers", "no_rope_layer_interval", "rope_theta"),
    ),
    Case(
        "smollm3_window",
        "SmolLM3ForCausalLM",
        SMALL | {"num_hidden_layers": 3, "no_rope_layers": [0, 1, 0], "use_sliding_window": True, "sliding_window": 12,
                 "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
        "a list of layers without rope, which have a window; biases",
        matters=[{"sliding_window": 64}, {"no_rope_layers": [1, 0, 0]}],
        prompt=40,
        gguf=False,
        notes="GGUF has no keys for the layers without rope and their window",
    ),
]

OLMO3_ROPE = {
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        "full_attention": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "attention_factor": 1.3,
                           "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 64},
    }
}

OLMO = [
    Case(
        "olmo2",
        "Olmo2ForCausalLM",
        SMALL | {"rms_norm_eps": 1e-3},
        "norms after the blocks only, norms of all heads of q and k at once",
        matters=[{"rms_norm_eps": 1e-6}],
    ),
    Case(
        "olmo3",
        "Olmo3ForCausalLM",
        FOUR_LAYERS | OLMO3_ROPE | {"sliding_window": 12},
        "windows on three of four layers, YaRN on the fourth",
        matters=[{"sliding_window": 64}, {"layer_types": ["full_attention"] + ["sliding_attention"] * 3}],
        prompt=80,
    ),
    Case(
        "olmo3_layer_types",
        "Olmo3ForCausalLM",
        SMALL | {"num_hidden_layers": 3, "sliding_window": 12, "attention_bias": True,
                 "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        "explicit layer_types, which GGUF keeps as a list; biases",
        matters=[{"layer_types": ["sliding_attention", "full_attention", "full_attention"]}],
        prompt=40,
    ),
]

GRANITE = [
    Case(
        "granite",
        "GraniteForCausalLM",
        SMALL | {"embedding_multiplier": 12.0, "attention_multiplier": 0.2, "residual_multiplier": 0.22,
                 "logits_scaling": 8.0, "rms_norm_eps": 1e-2},
        "factors on embedding, scores, blocks and logits; an epsilon that the factor of the blocks must not change",
        matters=[{"embedding_multiplier": 1.0}, {"attention_multiplier": 0.1}, {"residual_multiplier": 1.0},
                 {"logits_scaling": 1.0}],
    ),
    Case(
        "granite_defaults",
        "GraniteForCausalLM",
        SMALL | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        "no factors, so scores are not scaled; biases, tied",
        matters=[{"attention_multiplier": 6**-0.5}],
        drop_in_v4=("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"),
    ),
]

DENSE_COUSINS = [
    Case(
        "seed_oss",
        "SeedOssForCausalLM",
        SMALL | {"head_dim": 16},
        "biases on q, k and v, head_dim is not hidden_size / heads",
        drop_in_v4=("attention_bias", "attention_out_bias"),
    ),
    Case(
        "seed_oss_out_bias",
        "SeedOssForCausalLM",
        SMALL | {"head_dim": 8, "attention_bias": False, "attention_out_bias": True, "mlp_bias": True},
        "biases on the attention output and the MLP only",
    ),
    Case(
        "hunyuan",
        "HunYuanDenseV1ForCausalLM",
        WIDE_HEADS | rope("dynamic", factor=1.0, alpha=50.0) | {"head_dim": 16, "tie_word_embeddings": True},
        "norms of q and k after rope; alpha stretches the base of the rope",
        matters=[rope("dynamic", factor=1.0, alpha=1.0)],
        prompt=48,
        old_rope_type="dynamic",
    ),
    Case(
        "hunyuan_plain",
        "HunYuanDenseV1ForCausalLM",
        SMALL | {"head_dim": 12, "attention_bias": True},
        "norms of q and k after a plain rope, biases, own output matrix",
    ),
    Case(
        "ernie4_5",
        "Ernie4_5ForCausalLM",
        SMALL | rope(theta=500000.0) | {"head_dim": 16, "tie_word_embeddings": True},
        "interleaved rope in both conventions, tied",
        drop_in_v4=("rope_theta",),
    ),
    Case(
        "ernie4_5_bias",
        "Ernie4_5ForCausalLM",
        SMALL | {"use_bias": True, "head_dim": 8, "tie_word_embeddings": False},
        "biases everywhere",
    ),
    Case(
        "exaone4",
        "Exaone4ForCausalLM",
        FOUR_LAYERS | {"sliding_window": 12, "sliding_window_pattern": 4},
        "norms after the blocks, norms of each head; windows on three layers, no rope on the fourth",
        matters=[{"sliding_window": 64}, {"layer_types": ["full_attention"] + ["sliding_attention"] * 3}],
        prompt=40,
    ),
    Case(
        "exaone4_no_window",
        "Exaone4ForCausalLM",
        WIDE_HEADS | rope("llama3", 5000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=64)
        | {"sliding_window": None, "layer_types": ["full_attention"] * 2, "head_dim": 16, "tie_word_embeddings": True},
        "EXAONE 4 1.2B: no window and llama3's rope scaling on all layers, tied",
        matters=[rope(theta=5000.0)],
        prompt=80,
    ),
    Case(
        "gemma",
        "GemmaForCausalLM",
        SMALL | {"num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6},
        "Gemma 1: scaled embedding, tanh GELU, norm weights stored minus one, tied",
    ),
]

ALTERNATING = ["sliding_attention", "full_attention"]
GEMMA4_CONFIG = FOUR_LAYERS | {
    "num_hidden_layers": 6,
    "layer_types": ALTERNATING * 3,
    "head_dim": 8,
    "global_head_dim": 16,
    "num_key_value_heads": 1,
    "sliding_window": 12,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 80,
    "use_double_wide_mlp": True,
    "rms_norm_eps": 1e-3,
}
GEMMA4_DENSE = FOUR_LAYERS | {
    "head_dim": 8,
    "global_head_dim": 16,
    "num_global_key_value_heads": 2,
    "attention_k_eq_v": True,
    "sliding_window": 12,
    "layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 2,
    "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 2.0,
    "rms_norm_eps": 1e-6,
}
GEMMA4_MIXTURE = {"enable_moe_block": True, "num_experts": 3, "top_k_experts": 3, "moe_intermediate_size": 12}
GEMMA4_EXPERTS = GEMMA4_DENSE | GEMMA4_MIXTURE | {
    "num_experts": 5,
    "top_k_experts": 2,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "layer_types": ALTERNATING,
}


def gemma4_rope(part, theta=10000.0):
    return {
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": part, "rope_theta": theta},
        }
    }


GEMMA4 = [
    Case(
        "gemma4",
        "Gemma4ForCausalLM",
        GEMMA4_CONFIG | gemma4_rope(0.5),
        "E2B: an input of its own for each layer, shared keys and values with wide MLPs, two head sizes, partial rope",
        matters=[gemma4_rope(0.25), {"sliding_window": 64}],
        prompt=40,
    ),
    Case(
        "gemma4_keys_are_values",
        "Gemma4ForCausalLM",
        GEMMA4_DENSE | gemma4_rope(0.25),
        "31B: values are keys on full layers, with their own number of KV heads; a soft-cap on the logits",
        matters=[{"final_logit_softcapping": None}, gemma4_rope(1.0), {"sliding_window": 64}],
        prompt=40,
    ),
    Case(
        "gemma4_multimodal",
        "Gemma4ForConditionalGeneration",
        {"text_config": GEMMA4_CONFIG | {"model_type": "gemma4_text", "pad_token_id": 0},
         "vision_config": None, "audio_config": None},
        "the text model inside of a multimodal folder, the default ropes",
        prompt=40,
        gguf=False,
        notes="as gemma4",
    ),
    Case(
        "gemma4_experts",
        "Gemma4ForCausalLM",
        GEMMA4_EXPERTS | gemma4_rope(0.25),
        "26B-A4B: experts beside the feed-forward, a router with a norm and a factor for each expert",
        matters=[{"top_k_experts": 1}, {"sliding_window": 64}],
        prompt=40,
    ),
    Case(
        "gemma4_experts_with_inputs",
        "Gemma4ForCausalLM",
        GEMMA4_CONFIG | GEMMA4_MIXTURE | gemma4_rope(0.5) 
        | {"num_hidden_layers": 4, "layer_types": ALTERNATING * 2, "hidden_size": 16, "intermediate_size": 12},
        "experts together with inputs of the layers and shared keys; every expert used",
        matters=[{"top_k_experts": 2}],
        prompt=40,
    ),
]

CASES = MISTRAL3 + SMOLLM3 + OLMO + GRANITE + DENSE_COUSINS + GEMMA4
