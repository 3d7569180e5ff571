"""Cases of mixtures of experts. Their folders also hold stacked.safetensors: the experts as transformers 5 stacks them."""

from .cases import SPECIAL, Case, rope

SMALL = SPECIAL | {
    "vocab_size": 80,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "num_experts_per_tok": 2,
}
FEWER = {"num_experts_per_tok": 1}
NO_RENORM_IN_GGUF = "GGUF has no key for norm_topk_prob: llama.cpp always renormalizes here"
NO_DENSE_LAYERS_IN_GGUF = "GGUF of this architecture has no dense layers"

MIXTRAL = SMALL | {"num_local_experts": 5}
QWEN2_MOE = SMALL | {
    "num_experts": 6,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 28,
    "num_experts_per_tok": 3,
}
QWEN3_MOE = SMALL | {"num_experts": 6, "moe_intermediate_size": 16, "head_dim": 12, "norm_topk_prob": True}

GLM4_MOE = SMALL | rope(partial_rotary_factor=0.5) | {
    "n_routed_experts": 6,
    "moe_intermediate_size": 16,
    "routed_scaling_factor": 1.8,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
GRANITE_MOE = SMALL | {
    "num_local_experts": 6,
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.0,
    "residual_multiplier": 0.6,
    "attention_multiplier": 0.2,
}
ERNIE4_5_MOE = {key: value for key, value in SMALL.items() if key != "num_experts_per_tok"} | {
    "moe_num_experts": 6,
    "moe_k": 2,
    "moe_intermediate_size": 16,
    "tie_word_embeddings": True,
}
PHIMOE = SMALL | {"num_local_experts": 6, "router_jitter_noise": 0.01}

CASES = [
    Case("mixtral", "MixtralForCausalLM", MIXTRAL, "softmax, renormalized weights", matters=[FEWER],
         dtype="float16"),
    Case(
        "mixtral_window",
        "MixtralForCausalLM",
        MIXTRAL | {"sliding_window": 9, "num_local_experts": 4, "num_experts_per_tok": 4, "vocab_size": 64}
        | rope(theta=500.0),
        "sliding window, every expert used, another rope_theta",
        matters=[{"sliding_window": None}, rope(theta=10000.0)],
        gguf=False,
        dtype="float16",
        notes="the converter writes no window for this architecture",
    ),
    Case("qwen3_moe", "Qwen3MoeForCausalLM", QWEN3_MOE, "norms of q and k, renormalized weights",
         matters=[FEWER, {"norm_topk_prob": False}], dtype="bfloat16"),
    Case(
        "qwen3_moe_dense_layers",
        "Qwen3MoeForCausalLM",
        QWEN3_MOE | {"num_hidden_layers": 4, "mlp_only_layers": [1], "decoder_sparse_step": 2, "norm_topk_prob": False,
                     "use_sliding_window": True, "sliding_window": 7, "attention_bias": True},
        "experts on every other layer, plain weights, a window, biases of attention",
        matters=[{"norm_topk_prob": True}, {"use_sliding_window": False}],
        gguf=False,
        dtype="bfloat16",
        notes=NO_RENORM_IN_GGUF + "; " + NO_DENSE_LAYERS_IN_GGUF,
    ),
    Case("qwen2_moe", "Qwen2MoeForCausalLM", QWEN2_MOE, "gated shared expert, plain weights, biases of q, k and v",
         matters=[FEWER, {"norm_topk_prob": True}], dtype="bfloat16"),
    Case(
        "qwen2_moe_dense_layers",
        "Qwen2MoeForCausalLM",
        QWEN2_MOE | {"num_hidden_layers": 3, "mlp_only_layers": [1], "norm_topk_prob": True, "qkv_bias": False,
                     "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2},
        "a dense layer, renormalized weights, no biases, a window on every other of the first layers",
        matters=[{"norm_topk_prob": False}, {"use_sliding_window": False}],
        gguf=False,
        dtype="float16",
        notes=NO_RENORM_IN_GGUF + "; " + NO_DENSE_LAYERS_IN_GGUF,
    ),
    Case("olmoe", "OlmoeForCausalLM", SMALL | {"num_experts": 6}, "norms of all heads of q and k at once",
         matters=[FEWER, {"norm_topk_prob": True}], dtype="bfloat16"),
    Case(
        "olmoe_clip",
        "OlmoeForCausalLM",
        SMALL | {"num_experts": 4, "clip_qkv": 0.8, "norm_topk_prob": True, "attention_bias": True, "vocab_size": 64},
        "q, k and v clamped, renormalized weights, biases",
        matters=[{"clip_qkv": None}, {"norm_topk_prob": False}],
        gguf=False,
        dtype="float16",
        notes="the converter writes neither clip_qkv nor norm_topk_prob for this architecture",
    ),
    Case(
        "glm4_moe",
        "Glm4MoeForCausalLM",
        GLM4_MOE,
        "a dense layer, RoPE on half a head, sigmoid scores with a choice bias, scaled weights, a shared expert",
        matters=[FEWER, {"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}],
        dtype="bfloat16",
    ),
    Case(
        "glm4_moe_groups",
        "Glm4MoeForCausalLM",
        GLM4_MOE | {"n_routed_experts": 8, "n_group": 4, "topk_group": 2, "n_shared_experts": 2,
                    "moe_intermediate_size": 8, "use_qk_norm": True,
                    "attention_bias": True, "first_k_dense_replace": 0, "norm_topk_prob": False, "vocab_size": 64},
        "groups of experts, norms of q and k, biases, two shared experts, plain weights",
        matters=[{"n_group": 1, "topk_group": 1}, {"norm_topk_prob": True}],
        dtype="float16",
    ),
    Case("granitemoe", "GraniteMoeForCausalLM", GRANITE_MOE, "Granite's multipliers, softmax over the chosen experts",
         matters=[FEWER, {"residual_multiplier": 1.0}, {"attention_multiplier": 0.4}], dtype="bfloat16"),
    Case(
        "granitemoeshared",
        "GraniteMoeSharedForCausalLM",
        GRANITE_MOE | {"shared_intermediate_size": 12, "num_local_experts": 4, "tie_word_embeddings": True},
        "a shared expert, a tied output",
        dtype="float16",
    ),
    Case(
        "ernie4_5_moe",
        "Ernie4_5_MoeForCausalLM",
        ERNIE4_5_MOE,
        "interleaved RoPE, a dense first layer, softmax scores with a choice bias, shared experts",
        matters=[{"moe_k": 1}, {"moe_norm_min": 1.5}],
        dtype="bfloat16",
    ),
    Case(
        "ernie4_5_moe_interval",
        "Ernie4_5_MoeForCausalLM",
        ERNIE4_5_MOE | {"num_hidden_layers": 4, "moe_layer_interval": 2, "moe_layer_start_index": 0,
                        "moe_layer_end_index": 2, "use_bias": True, "moe_num_shared_experts": 0, "moe_norm_min": 1.5,
                        "tie_word_embeddings": False},
        "experts on some layers, biases, no shared expert, a large moe_norm_min",
        matters=[{"moe_norm_min": 1e-12}],
        gguf=False,
        dtype="float16",
        notes="GGUF has no keys for moe_norm_min and moe_layer_end_index",
    ),
    Case(
        "ernie4_5_moe_tied_bias",
        "Ernie4_5_MoeForCausalLM",
        ERNIE4_5_MOE | {"use_bias": True, "vocab_size": 64, "moe_num_experts": 4, "moe_k": 4},
        "biases, also on the output matrix, which is tied; every expert used",
        gguf=False,
        dtype="float16",
        notes="the converter writes no bias of the output matrix",
    ),
    Case(
        "minimax_m2",
        "MiniMaxM2ForCausalLM",
        SMALL | {"num_local_experts": 6, "head_dim": 8} | rope(theta=5000.0, partial_rotary_factor=0.5),
        "norms of all heads of q and k at once, RoPE on a part of a head, sigmoid scores with a choice bias",
        matters=[FEWER, rope(theta=5000.0, partial_rotary_factor=1.0)],
        dtype="bfloat16",
    ),
    Case("phimoe", "PhimoeForCausalLM", PHIMOE, "LayerNorm with biases, SparseMixer",
         matters=[{"router_jitter_noise": 0.3}], dtype="bfloat16",
         notes="llama.cpp computes a softmax over all experts and renormalizes; Hugging Face is right"),
    Case(
        "phimoe_longrope",
        "PhimoeForCausalLM",
        PHIMOE
        | {"attention_bias": True, "lm_head_bias": True, "original_max_position_embeddings": 64, "sliding_window": 30,
           "router_jitter_noise": 0.2,
           "vocab_size": 64, "num_local_experts": 4, "num_attention_heads": 2, "num_key_value_heads": 1}
        | rope("longrope", short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], long_factor=[1.0, 1.5, 2.0, 3.0, 4.0, 5.0],
               original_max_position_embeddings=64, short_mscale=1.1, long_mscale=1.3),
        "longrope with magnitudes of its own, crossed by the generated tokens; biases, a window",
        matters=[{"sliding_window": None}],
        prompt=40,
        gguf=False,
        dtype="float16",
        notes="GGUF has no keys for short_mscale and long_mscale",
    ),
]
