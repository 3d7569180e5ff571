"""Cases of Mamba-2, its hybrids with attention, and short convolutions."""

from .cases import SPECIAL, Case, rope

SMALL = SPECIAL | {
    "vocab_size": 80,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
TINY = SMALL | {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24}
NO_STEP_LIMIT_IN_GGUF = "GGUF has no key for the limits of the step"
NO_GATE_ORDER_IN_GGUF = "GGUF has no key for the order of gate and norm: llama.cpp gates first"

MAMBA2 = SPECIAL | {
    "vocab_size": 80,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_heads": 6,
    "head_dim": 8,
    "state_size": 16,
    "n_groups": 2,
    "chunk_size": 8,
    "conv_kernel": 4,
}
LFM2 = SMALL | {
    "num_hidden_layers": 3,
    "layer_types": ["conv", "full_attention", "conv"],
    "block_multiple_of": 16,
    "norm_eps": 1e-5,
}
LFM2_MOE = TINY | {
    "num_hidden_layers": 3,
    "layer_types": ["conv", "full_attention", "conv"],
    "norm_eps": 1e-5,
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "num_dense_layers": 1,
    "moe_intermediate_size": 8,
}
GRANITE = TINY | {
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "rms_norm_eps": 1e-5,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "intermediate_size": 8,
    "shared_intermediate_size": 12,
    "mamba_n_heads": 4,
    "mamba_d_head": 8,
    "mamba_d_state": 16,
    "mamba_chunk_size": 8,
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.0,
    "residual_multiplier": 0.6,
    "attention_multiplier": 0.2,
}
FALCON = TINY | {
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "head_dim": 8,
    "mamba_d_ssm": 40,
    "mamba_n_heads": 5,
    "mamba_d_head": 8,
    "mamba_d_state": 16,
    "mamba_chunk_size": 8,
    "embedding_multiplier": 2.0,
    "lm_head_multiplier": 0.5,
    "mlp_multipliers": [0.7, 0.6],
    "key_multiplier": 0.5,
    "attention_in_multiplier": 1.25,
    "attention_out_multiplier": 0.8,
    "ssm_in_multiplier": 1.5,
    "ssm_out_multiplier": 0.75,
    "ssm_multipliers": [0.5, 0.9, 0.8, 1.2, 0.7],
}
NEMOTRON = TINY | {
    "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"],
    "head_dim": 8,
    "mamba_num_heads": 6,
    "mamba_head_dim": 8,
    "ssm_state_size": 16,
    "n_groups": 2,
    "chunk_size": 8,
}

CASES = [
    Case("mamba2", "Mamba2ForCausalLM", MAMBA2, "state-space layers only, two groups", matters=[{"n_groups": 2, "use_conv_bias": True, "layer_norm_epsilon": 0.5}],
         prompt=40),
    Case(
        "mamba2_tied_bias",
        "Mamba2ForCausalLM",
        MAMBA2 | {"n_groups": 1, "use_bias": True, "use_conv_bias": False, "tie_word_embeddings": True, "conv_kernel": 3},
        "one group, biases of the projections, a convolution of three taps without bias, tied output",
        dtype="bfloat16",
    ),
    Case(
        "mamba2_step_limit",
        "Mamba2ForCausalLM",
        MAMBA2 | {"time_step_limit": [0.5, 0.9]},
        "limits of the step",
        matters=[{"time_step_limit": [0.0, 0.9]}, {"time_step_limit": [0.5, 10.0]}],
        gguf=False,
        notes=NO_STEP_LIMIT_IN_GGUF,
    ),
    Case("lfm2", "Lfm2ForCausalLM", LFM2 | rope(theta=1000000.0), "short convolutions and attention with head norms",
         matters=[rope(theta=500.0)], prompt=40),
    Case(
        "lfm2_bias",
        "Lfm2ForCausalLM",
        LFM2 | {"conv_bias": True, "conv_L_cache": 4, "block_auto_adjust_ff_dim": False} | rope(theta=10000.0),
        "biases and four taps of the convolution, the width as configured",
    ),
    Case(
        "lfm2_no_attention",
        "Lfm2ForCausalLM",
        LFM2 | {"num_hidden_layers": 2, "layer_types": ["conv", "conv"], "num_attention_heads": 3, "num_key_value_heads": 1},
        "no layer with attention: GGUF has no number of KV heads",
    ),
    Case("lfm2_moe", "Lfm2MoeForCausalLM", LFM2_MOE | rope(theta=1000000.0), "a dense layer, then experts with a choice bias",
         matters=[{"num_experts_per_tok": 1}]),
    Case(
        "granite_hybrid",
        "GraniteMoeHybridForCausalLM",
        GRANITE,
        "mixers and attention without RoPE, experts and a shared expert, all factors",
        matters=[{"residual_multiplier": 1.0}, {"position_embedding_type": "rope"}],
        prompt=40,
    ),
    Case(
        "granite_hybrid_dense",
        "GraniteMoeHybridForCausalLM",
        GRANITE | {"num_local_experts": 0, "num_experts_per_tok": 0, "intermediate_size": 16, "shared_intermediate_size": 16, "mamba_n_groups": 2,
                   "tie_word_embeddings": True},
        "no experts: the shared expert is the feed-forward; two groups",
    ),
    Case(
        "granite_hybrid_rope",
        "GraniteMoeHybridForCausalLM",
        GRANITE | {"position_embedding_type": "rope", "layer_types": ["full_attention", "linear_attention"],
                   "num_hidden_layers": 2},
        "RoPE in the attention layers, a mixer in the last layer",
        gguf=False,
        notes="the converter writes hybrids without RoPE",
    ),
    Case("falcon_h1", "FalconH1ForCausalLM", FALCON, "attention and mixer side by side, all factors, gate without norm",
         matters=[{"ssm_multipliers": [1.0] * 5}, {"key_multiplier": 1.0}, {"mlp_multipliers": [1.0, 1.0]}], prompt=40),
    Case(
        "falcon_h1_norm",
        "FalconH1ForCausalLM",
        FALCON | {"mamba_rms_norm": True, "mamba_norm_before_gate": False},
        "the norm behind the gate",
    ),
    Case(
        "falcon_h1_norm_first",
        "FalconH1ForCausalLM",
        FALCON | {"mamba_rms_norm": True, "mamba_norm_before_gate": True, "projectors_bias": True, "attention_bias": True,
                  "mlp_bias": True, "mamba_proj_bias": True},
        "the norm before the gate, biases everywhere",
        gguf=False,
        notes=NO_GATE_ORDER_IN_GGUF,
    ),
    Case("nemotron_h", "NemotronHForCausalLM", NEMOTRON, "mixers, attention without RoPE, feed-forwards with squared ReLU",
         prompt=40),
    Case(
        "nemotron_h_step",
        "NemotronHForCausalLM",
        NEMOTRON | {"time_step_min": 0.6, "n_groups": 1},
        "a least step that matters, one group",
        matters=[{"time_step_min": 0.001}],
        gguf=False,
        notes=NO_STEP_LIMIT_IN_GGUF,
    ),
    Case(
        "nemotron_h_moe",
        "NemotronHForCausalLM",
        NEMOTRON
        | {"layers_block_type": ["linear_attention", "moe", "full_attention", "moe"], "n_routed_experts": 5,
           "num_experts_per_tok": 2, "moe_intermediate_size": 8, "moe_shared_expert_intermediate_size": 20,
           "routed_scaling_factor": 1.8},
        "experts without gate and a shared expert",
        matters=[{"num_experts_per_tok": 1}],
    ),
    Case(
        "nemotron_h_latent",
        "NemotronHForCausalLM",
        NEMOTRON
        | {"layers_block_type": ["moe", "linear_attention", "full_attention", "moe"], "n_routed_experts": 6, "num_experts_per_tok": 3,
           "moe_intermediate_size": 10, "moe_shared_expert_intermediate_size": 12, "moe_latent_size": 11, "n_group": 3, "topk_group": 2,
           "norm_topk_prob": False, "mlp_hidden_act": "relu2"},
        "Nemotron 3 Super: experts in a narrower space, groups of experts, plain weights",
        matters=[{"num_experts_per_tok": 1}, {"n_group": 1, "topk_group": 1}, {"norm_topk_prob": True}],
    ),
]
