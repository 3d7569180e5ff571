"""Cases of the decoders with LayerNorm."""

from .cases import NO_WINDOW_IN_GGUF, SPECIAL, VOCABULARY, Case, rope

LAYER_NORM = SPECIAL | {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}

COHERE = [
    Case(
        "cohere",
        "CohereForCausalLM",
        LAYER_NORM | {"logit_scale": 0.25, "layer_norm_eps": 1e-3} | rope(theta=8000.0),
        "LayerNorm without bias, parallel blocks with one norm, interleaved rope, scaled logits, tied",
        matters=[{"logit_scale": 0.5}, {"layer_norm_eps": 1e-6}, rope(theta=500.0)],
    ),
    Case(
        "cohere_qk_norm",
        "CohereForCausalLM",
        LAYER_NORM | {"use_qk_norm": True, "attention_bias": True} | rope(theta=8000.0),
        "LayerNorm of q and k with weights of each head, biases on attention, the usual logit_scale",
        matters=[{"logit_scale": 1.0}],
        drop_in_v4=("logit_scale",),
    ),
    Case(
        "cohere_untied",
        "CohereForCausalLM",
        LAYER_NORM | {"tie_word_embeddings": False, "head_dim": 12, "hidden_act": "gelu"}
        | rope("linear", 8000.0, factor=2.0),
        "own output matrix, head_dim is not hidden_size / heads, linear rope scaling",
        matters=[rope(theta=8000.0), {"hidden_act": "silu"}],
        gguf=False,
        notes="GGUF of this architecture has no output matrix of its own and no rope scaling",
    ),
    Case(
        "cohere2",
        "Cohere2ForCausalLM",
        LAYER_NORM | {"num_hidden_layers": 5, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1,
                      "intermediate_size": 24, "sliding_window": 12, "logit_scale": 0.25}
        | rope(theta=8000.0),
        "windows and rope on three of four layers, neither on the others",
        matters=[{"sliding_window": 64}, {"layer_types": ["sliding_attention"] * 5}, rope(theta=500.0)],
        prompt=40,
    ),
    Case(
        "cohere2_layer_types",
        "Cohere2ForCausalLM",
        LAYER_NORM | {"num_hidden_layers": 3, "sliding_window": 12, "attention_bias": True,
                      "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        "explicit layer_types, biases on attention",
        matters=[{"layer_types": ["sliding_attention", "full_attention", "full_attention"]}],
        prompt=40,
        gguf=False,
        notes="GGUF has no key for such a pattern of layers",
    ),
]

STARCODER2 = [
    Case(
        "starcoder2",
        "Starcoder2ForCausalLM",
        LAYER_NORM | {"norm_epsilon": 1e-3} | rope(theta=100000.0),
        "LayerNorm and biases everywhere, feed-forward without gate, tied",
        matters=[{"norm_epsilon": 1e-6}, rope(theta=500.0), {"hidden_act": "relu"}],
    ),
    Case(
        "starcoder2_sliding_window",
        "Starcoder2ForCausalLM",
        LAYER_NORM | {"sliding_window": 12, "use_bias": False, "tie_word_embeddings": False, "hidden_act": "gelu"},
        "a window on every layer, no biases of matrices, own output matrix",
        matters=[{"sliding_window": None}, {"hidden_act": "relu"}],
        prompt=40,
        gguf=False,
        notes=NO_WINDOW_IN_GGUF,
    ),
]

GPT2_CONFIG = {
    "vocab_size": VOCABULARY,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 3,
    "n_positions": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

GPT2 = [
    Case(
        "gpt2",
        "GPT2LMHeadModel",
        GPT2_CONFIG,
        "learned positions, matrices stored as [in, out], q, k and v in one, tied",
        matters=[{"activation_function": "relu"}],
        drop_in_v4=("n_inner", "activation_function", "layer_norm_epsilon", "scale_attn_weights", "tie_word_embeddings"),
    ),
    Case(
        "gpt2_f16",
        "GPT2LMHeadModel",
        GPT2_CONFIG | {"n_inner": 40},
        "f16, the names of the published GPT-2 (without transformer.), n_inner",
        dtype="float16",
        rename=(("transformer.", ""),),
        notes="the converter writes a feed-forward length of 4 * n_embd in any case; the tensors tell",
    ),
    Case(
        "gpt2_scores",
        "GPT2LMHeadModel",
        GPT2_CONFIG | {"n_layer": 3, "scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False,
                       "activation_function": "gelu", "tie_word_embeddings": False, "layer_norm_epsilon": 0.1},
        "scores divided by the number of the layer and not by the root of the head size, own output matrix",
        matters=[{"scale_attn_by_inverse_layer_idx": False}, {"scale_attn_weights": True}, {"layer_norm_epsilon": 1e-6}],
        gguf=False,
        notes="GGUF has no keys for these scales",
    ),
]

NEOX_CONFIG = {k: v for k, v in LAYER_NORM.items() if k != "num_key_value_heads"} | {"num_attention_heads": 2}

GPT_NEOX = [
    Case(
        "gpt_neox",
        "GPTNeoXForCausalLM",
        NEOX_CONFIG | rope(partial_rotary_factor=0.25),
        "parallel blocks with a norm each, q, k and v stored by head, rope on a quarter of each head, exact GeLU",
        matters=[{"use_parallel_residual": False}, rope(partial_rotary_factor=0.5), {"hidden_act": "relu"}],
        notes="llama.cpp approximates the GeLU of this architecture by tanh; Hugging Face does not",
    ),
    Case(
        "gpt_neox_serial",
        "GPTNeoXForCausalLM",
        NEOX_CONFIG | rope(partial_rotary_factor=1.0)
        | {"num_attention_heads": 4, "use_parallel_residual": False, "layer_norm_eps": 1e-3},
        "serial blocks, rope on whole heads, bf16",
        dtype="bfloat16",
        matters=[{"use_parallel_residual": True}, {"layer_norm_eps": 1e-6}, rope(partial_rotary_factor=0.5)],
    ),
    Case(
        "gpt_neox_no_bias",
        "GPTNeoXForCausalLM",
        NEOX_CONFIG | {"attention_bias": False, "tie_word_embeddings": True, "hidden_act": "gelu_fast"}
        | rope("linear", 500.0, partial_rotary_factor=0.5, factor=2.0),
        "no biases on attention, tied, linear rope scaling with a base of its own",
        matters=[rope(theta=500.0, partial_rotary_factor=0.5), rope("linear", partial_rotary_factor=0.5, factor=2.0)],
        gguf=False,
        notes="GGUF of this architecture has no base and no scaling of the rope",
    ),
]

PHI = [
    Case(
        "phi",
        "PhiForCausalLM",
        LAYER_NORM | {"num_attention_heads": 2, "num_key_value_heads": 2} | rope(partial_rotary_factor=0.5),
        "parallel blocks with one norm, biases everywhere, also on the output matrix, rope on half of each head",
        matters=[rope(partial_rotary_factor=0.25), {"hidden_act": "relu"}],
        drop_in_v4=("partial_rotary_factor", "hidden_act"),
        notes="the converter writes a feed-forward length of 4 * hidden_size in any case; the tensors tell",
    ),
    Case(
        "phi_qk_norm",
        "PhiForCausalLM",
        LAYER_NORM | {"qk_layernorm": True, "tie_word_embeddings": True, "layer_norm_eps": 0.1, "hidden_act": "gelu"}
        | rope("linear", 500.0, partial_rotary_factor=0.5, factor=2.0),
        "LayerNorm of q and k, KV heads, the output matrix tied but its bias not",
        matters=[{"layer_norm_eps": 1e-6}, rope(theta=500.0, partial_rotary_factor=0.5)],
        gguf=False,
        notes="GGUF of this architecture has no norms of q and k",
    ),
]

STABLELM = [
    Case(
        "stablelm",
        "StableLmForCausalLM",
        LAYER_NORM | {"num_attention_heads": 2, "num_key_value_heads": 1} | rope(partial_rotary_factor=0.25),
        "serial blocks, gated feed-forward, rope on a quarter of each head",
        matters=[rope(partial_rotary_factor=0.5), {"layer_norm_eps": 1e-1}],
        drop_in_v4=("partial_rotary_factor",),
    ),
    Case(
        "stablelm_12b",
        "StableLmForCausalLM",
        LAYER_NORM | {"use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True}
        | rope(partial_rotary_factor=0.5),
        "parallel blocks with one norm, norms of q and k with weights of each head, biases on q, k and v",
        matters=[rope(partial_rotary_factor=0.25)],
    ),
]

NEMOTRON = [
    Case(
        "nemotron",
        "NemotronForCausalLM",
        LAYER_NORM | {"norm_eps": 1e-3} | rope(partial_rotary_factor=0.5),
        "LayerNorm with weight + 1, squared ReLU without gate, rope on half of each head",
        matters=[{"norm_eps": 1e-6}, {"hidden_act": "relu"}, rope(partial_rotary_factor=0.25)],
        drop_in_v4=("partial_rotary_factor", "hidden_act"),
    ),
    Case(
        "nemotron_bias",
        "NemotronForCausalLM",
        LAYER_NORM | {"attention_bias": True, "mlp_bias": True, "head_dim": 12}
        | rope("linear", 5000.0, partial_rotary_factor=0.5, factor=2.0),
        "biases, head_dim is not hidden_size / heads, linear rope scaling",
        matters=[rope(theta=5000.0, partial_rotary_factor=0.5)],
        notes="the converter computes the rotary part from hidden_size / heads; Hugging Face rotates half of head_dim",
    ),
]

CASES = COHERE + STARCODER2 + GPT2 + GPT_NEOX + PHI + STABLELM + NEMOTRON
