"""Cases of multi-head latent attention."""

from .cases import SPECIAL, Case, rope

SMALL = SPECIAL | {
    "vocab_size": 80,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 16,
    "v_head_dim": 12,
}
MIXTURE = SMALL | {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
NO_INTERLEAVE_IN_GGUF = "GGUF has no key for rope_interleave"


def yarn(**more):
    return rope("yarn", factor=4.0, original_max_position_embeddings=128, beta_fast=4.0, beta_slow=1.0, **more)


CASES = [
    Case(
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        MIXTURE | yarn(mscale=0.707, mscale_all_dim=0.707)
        | {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3,
           "routed_scaling_factor": 1.5},
        "a query of low rank, YaRN's factor on the scores, groups of experts by their best, scaled weights",
        matters=[{"topk_group": 4}, {"routed_scaling_factor": 1.0}, yarn(mscale=0.1, mscale_all_dim=0.1)],
        dtype="bfloat16",
        notes="llama.cpp orders groups by their two best experts; Hugging Face is right",
    ),
    Case(
        "deepseek_v2_lite",
        "DeepseekV2ForCausalLM",
        MIXTURE | {"q_lora_rank": None, "n_shared_experts": 2, "attention_bias": True, "norm_topk_prob": True},
        "a query without low rank, greedy choice, two shared experts, biases; GGUF with the undivided attn_kv_b",
        matters=[{"num_experts_per_tok": 3}],
        dtype="float16",
        older_gguf=True,
    ),
    Case(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        MIXTURE | yarn(mscale=1.0, mscale_all_dim=1.0) | {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5},
        "YaRN's factor on the scores, sigmoid scores with a choice bias, groups by their two best, renormalized",
        matters=[{"topk_group": 4}, {"norm_topk_prob": False}, {"rope_interleave": False}],
        dtype="bfloat16",
    ),
    Case(
        "deepseek_v3_halves",
        "DeepseekV3ForCausalLM",
        MIXTURE | yarn()
        | {"n_group": 1, "topk_group": 1, "rope_interleave": False, "norm_topk_prob": False, "q_lora_rank": None,
           "attention_bias": True, "first_k_dense_replace": 0, "num_attention_heads": 3, "num_key_value_heads": 3,
           "qk_nope_head_dim": 5, "v_head_dim": 7, "kv_lora_rank": 18, "qk_rope_head_dim": 6},
        "RoPE on halves, YaRN's factor on cosines, plain weights, no dense layer, biases, odd sizes",
        matters=[{"rope_interleave": True}, {"norm_topk_prob": True}],
        dtype="float16",
        gguf=False,
        notes=NO_INTERLEAVE_IN_GGUF,
    ),
    Case(
        "deepseek_v3_fp8",
        "DeepseekV3ForCausalLM",
        MIXTURE | {"n_group": 2, "topk_group": 1, "kv_lora_rank": 32, "q_lora_rank": 32, "n_routed_experts": 4,
                   "qk_nope_head_dim": 16, "v_head_dim": 16, "moe_intermediate_size": 32, "intermediate_size": 64,
                   "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2},
        "matrices in FP8 with one scale per tile, kv_b_proj among them",
        dtype="bfloat16",
        quantized="fp8",
        gguf=False,
        notes="GGUF has no FP8",
    ),
    Case(
        "glm4_moe_lite",
        "Glm4MoeLiteForCausalLM",
        {key: value for key, value in MIXTURE.items() if key != "first_k_dense_replace"}
        | {"v_head_dim": 16, "routed_scaling_factor": 1.8},
        "GLM-4.7-Flash: values wider than keys, one group of experts",
        matters=[{"routed_scaling_factor": 1.0}],
        dtype="bfloat16",
    ),
    Case(
        "minicpm3",
        "MiniCPM3ForCausalLM",
        SMALL | {"v_head_dim": 8, "tie_word_embeddings": False}  # a tied output would only repeat the scaled input
        | rope("longrope", short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], long_factor=[4.0] * 8,
               original_max_position_embeddings=512),
        "a dense decoder, factors on embedding, blocks and logits, longrope within the original context",
        matters=[{"scale_emb": 1}, {"scale_depth": 3.0}, {"dim_model_base": 32}, rope()],
        dtype="float16",
        notes="GGUF has no keys for the factors; llama.cpp uses 12, 1.4 and 256",
    ),
    Case(
        "minicpm3_longrope",
        "MiniCPM3ForCausalLM",
        SMALL | {"attention_bias": True, "q_lora_rank": None, "tie_word_embeddings": False, "scale_emb": 2,
                 "scale_depth": 0.9, "dim_model_base": 16}
        | rope("longrope", short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
               long_factor=[1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0], original_max_position_embeddings=32),
        "longrope beyond the original context, other factors, biases, a query without low rank",
        matters=[{"scale_emb": 12}],
        prompt=40,
        gguf=False,
        dtype="float16",
        notes="GGUF has no keys for the factors",
    ),
]
