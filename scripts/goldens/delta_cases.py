"""Cases of gated delta nets: Qwen3-Next and Qwen 3.5."""

from .cases import Case
from .mixture_cases import SMALL as SMALL_MIXTURE

SMALL = SMALL_MIXTURE | {
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.25},
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
           "shared_expert_intermediate_size": 12}
# The recurrence carries roundings from row to row.
RECURRENT_NOISE = 3e-5
# Prompts longer than one chunk of transformers' chunked rule, which has 64 rows.
LONG = {"prompt": 70, "rows": [0, 1, 2, 3, 4, 7, 39, 62, 63, 64, 65, 68, 69]}
DENSE = {key: value for key, value in SMALL.items() if key != "num_experts_per_tok"}
VISION = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "patch_size": 2,
          "spatial_merge_size": 1, "temporal_patch_size": 1, "out_hidden_size": 16, "num_position_embeddings": 4}

CASES = [
    Case(
        "qwen3_next",
        "Qwen3NextForCausalLM",
        SMALL | EXPERTS,
        "gated delta nets and gated attention, partial rope, experts with a gated shared expert",
        matters=[{"norm_topk_prob": False}, {"layer_types": ["linear_attention"] * 3 + ["full_attention"],
                                             "num_experts_per_tok": 1}],
        dtype="bfloat16",
        noise=RECURRENT_NOISE,
        **LONG,
    ),
    Case(
        "qwen3_next_variants",
        "Qwen3NextForCausalLM",
        SMALL | EXPERTS | {"num_hidden_layers": 3, "mlp_only_layers": [1], "norm_topk_prob": False,
                           "attention_bias": True, "linear_conv_kernel_dim": 3, "linear_num_value_heads": 2,
                           "linear_key_head_dim": 16, "linear_value_head_dim": 10,
                           "layer_types": ["full_attention", "linear_attention", "linear_attention"]},
        "a last layer without attention, a dense layer, plain router weights, biases of attention, three taps, as many "
        "key heads as value heads",
        matters=[{"norm_topk_prob": True}],
        dtype="bfloat16",
        noise=RECURRENT_NOISE,
        gguf=False,
        notes="GGUF has no keys for such layers",
    ),
    Case(
        "qwen3_5",
        "Qwen3_5ForCausalLM",
        DENSE | {"intermediate_size": 32, "linear_num_value_heads": 6, "tie_word_embeddings": True},
        "a dense feed-forward, three value heads to a key head (tiled in GGUF), tied",
        dtype="bfloat16",
        noise=RECURRENT_NOISE,
        **LONG,
    ),
    Case(
        "qwen3_5_multimodal",
        "Qwen3_5ForConditionalGeneration",
        {"text_config": DENSE | {"layer_types": ["linear_attention", "full_attention"] * 2,
                                 "linear_value_head_dim": 8},
         "vision_config": VISION, "tie_word_embeddings": False,
         "bos_token_id": 1, "eos_token_id": 2, "image_token_id": 77, "video_token_id": 78,
         "vision_start_token_id": 76, "vision_end_token_id": 75},
        "the text model inside of a multimodal folder, every second layer with attention",
        dtype="bfloat16",
        noise=RECURRENT_NOISE,
        notes="the GGUF holds the text model only, as the converter writes it",
    ),
    Case(
        "qwen3_5_moe",
        "Qwen3_5MoeForCausalLM",
        SMALL | EXPERTS | {"linear_num_key_heads": 3, "linear_num_value_heads": 6},
        "experts with a gated shared expert",
        matters=[{"num_experts_per_tok": 1}],
        dtype="bfloat16",
        noise=RECURRENT_NOISE,
    ),
]
