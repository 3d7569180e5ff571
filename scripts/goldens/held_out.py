"""Random models of the architectures with RMS norms, experts, latent attention and recurrent state, for scripts/check-held-out."""

from .cases import SPECIAL, Case

ACTIVATIONS = ["silu", "gelu", "gelu_pytorch_tanh", "relu"]
LENGTH = 100
STEPS = [0.0, float("inf")]


def rope_of(draw, turned, rotary=None, kinds=("default", "linear", "llama3", "yarn", "longrope", "dynamic")):
    """A rope for heads of which `turned` elements rotate."""
    kind = draw.choice([kind for kind in kinds if kind != "dynamic" or turned > 2])  # which transformers divides by turned - 2
    original = draw.choice([32, 64, 4096])  # below and above the prompt
    half = range(turned // 2)
    more = {
        "linear": {"factor": 3.0},
        "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original},
        "yarn": {"factor": 4.0, "original_max_position_embeddings": original} | draw.choice(
            [{}, {"attention_factor": 1.2}, {"mscale": 1.0, "mscale_all_dim": 0.6}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"truncate": False}]),
        "longrope": {"factor": 4.0, "original_max_position_embeddings": original, "short_factor": [1 + 0.02 * i for i in half],
                     "long_factor": [1 + 0.1 * i for i in half]},
        "dynamic": {"factor": 4.0},
    }.get(kind, {})
    more |= {} if rotary is None else {"partial_rotary_factor": rotary}
    return {"rope_parameters": {"rope_type": kind, "rope_theta": draw.choice([500.0, 10000.0, 1e6])} | more}


class Draw:
    """What is common to the architectures: sizes that no kernel prefers."""

    def __init__(self, random):
        self.random, self.choice = random, random.choice
        self.head = random.choice([2, 4, 8, 12, 14, 16, 18, 24, 32, 36, 40, 64, 80, 128])
        self.kv_heads = random.choice([1, 2, 3])
        self.heads = self.kv_heads * random.choice([1, 2, 3, 5])
        self.layers = random.choice([2, 3, 4])
        self.hidden = self.heads * random.choice([6, 10, 16, 22, 32])
        self.inner = random.randrange(20, 200)
        self.window = random.choice([1, 2, 5, 16, 33, 64, 99, 100])

    def coin(self):
        return self.random.random() < 0.5

    def sizes(self, **more):
        return SPECIAL | {
            "vocab_size": self.random.choice([self.random.randrange(70, 300), 1025]), "hidden_size": self.hidden, "intermediate_size": self.inner,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
            "max_position_embeddings": 512, "rms_norm_eps": self.choice([1e-12, 1e-6, 1e-5, 1e-2]), "tie_word_embeddings": self.random.random() < 0.3,
        } | more

    def fitted(self):
        """Heads as wide as hidden_size / heads, for architectures without head_dim."""
        self.head = self.choice([8, 12, 16, 24, 32])
        self.hidden = self.heads * self.head
        return self

    def act(self, key="hidden_act", others=ACTIVATIONS):
        return {key: self.choice(["silu"] * 3 + list(others))}

    def experts(self, least=1):
        count = self.choice([1] * (least == 1) + [self.random.randrange(max(2, least), 13)] * 3 + [self.random.choice([40, 64, 96, 130])])
        return count, self.choice([1, min(2, count), self.random.randrange(1, count + 1), count])

    def wide(self):
        """A width of an expert."""
        return self.choice([self.random.randrange(1, 5), self.random.randrange(5, 70), 129])

    def kinds(self, *names):
        return [self.choice(names) for _ in range(self.layers)]

    def subset(self):
        return sorted(i for i in range(self.layers) if self.random.random() < 0.3)


def mixtral(d):
    count, per_row = d.experts()
    return "MixtralForCausalLM", d.sizes(head_dim=d.head, num_local_experts=count, num_experts_per_tok=per_row, sliding_window=d.choice([None, d.window])) | d.act() | rope_of(d, d.head)


def qwen2_moe(d):
    count, per_row = d.fitted().experts()
    return "Qwen2MoeForCausalLM", d.sizes(
        num_experts=count, num_experts_per_tok=per_row, moe_intermediate_size=d.wide(), shared_expert_intermediate_size=d.wide(), norm_topk_prob=d.coin(),
        qkv_bias=d.coin(), decoder_sparse_step=d.choice([1, 1, 2]), mlp_only_layers=d.subset(), use_sliding_window=d.coin(), sliding_window=d.window,
        max_window_layers=d.choice([0, 1, 2])) | d.act() | rope_of(d, d.head)


def qwen3_moe(d):
    count, per_row = d.experts()
    return "Qwen3MoeForCausalLM", d.sizes(
        head_dim=d.head, num_experts=count, num_experts_per_tok=per_row, moe_intermediate_size=d.wide(), norm_topk_prob=d.coin(), attention_bias=d.coin(),
        decoder_sparse_step=d.choice([1, 1, 2]), mlp_only_layers=d.subset(), use_sliding_window=d.coin(), sliding_window=d.window) | d.act() | rope_of(d, d.head)


def olmoe(d):
    count, per_row = d.fitted().experts()
    return "OlmoeForCausalLM", d.sizes(num_experts=count, num_experts_per_tok=per_row, norm_topk_prob=d.coin(), attention_bias=d.coin(),
                                       clip_qkv=d.choice([None, 0.7])) | d.act() | rope_of(d, d.head)


def gpt_oss(d):
    count, per_row = d.experts()
    return "GptOssForCausalLM", d.sizes(
        head_dim=d.head, num_local_experts=count, num_experts_per_tok=per_row, sliding_window=d.window, attention_bias=d.coin(),
        layer_types=d.kinds("sliding_attention", "full_attention"), swiglu_limit=d.choice([0.7, 7.0])) | rope_of(d, d.head)


def sigmoid_experts(d):
    groups = d.choice([1, 1, 2, 3])
    count = groups * d.random.randrange(2, 6)
    kept = d.random.randrange(1, groups + 1)
    return {"n_routed_experts": count, "num_experts_per_tok": d.random.randrange(1, count // groups * kept + 1), "n_group": groups, "topk_group": kept,
            "moe_intermediate_size": d.wide(), "n_shared_experts": d.choice([0, 1, 2, 3]), "routed_scaling_factor": d.choice([1.0, 2.5]),
            "norm_topk_prob": d.coin(), "first_k_dense_replace": d.choice([0, 1, 2, d.layers])}


def glm4_moe(d):
    rotary = d.choice([0.5, 1.0]) if d.head % 4 == 0 else 1.0
    return "Glm4MoeForCausalLM", d.sizes(head_dim=d.head, attention_bias=d.coin(), use_qk_norm=d.coin()) | sigmoid_experts(d) | d.act() | rope_of(d, int(d.head * rotary), rotary)


def granite_factors(d):
    return {"embedding_multiplier": d.choice([1.0, 6.0]), "logits_scaling": d.choice([1.0, 4.0]), "residual_multiplier": d.choice([1.0, 0.3]),
            "attention_multiplier": d.choice([0.1, 0.4]), "attention_bias": d.coin()}


def granitemoe(d):
    count, per_row = d.fitted().experts()
    return "GraniteMoeForCausalLM", d.sizes(num_local_experts=count, num_experts_per_tok=per_row) | granite_factors(d) | d.act() | rope_of(d, d.head)


def granitemoeshared(d):
    count, per_row = d.fitted().experts()
    return "GraniteMoeSharedForCausalLM", d.sizes(num_local_experts=count, num_experts_per_tok=per_row, shared_intermediate_size=d.choice([0, d.wide()])
                                                  ) | granite_factors(d) | d.act() | rope_of(d, d.head)


def ernie4_5_moe(d):
    count, per_row = d.fitted().experts()
    first = d.choice([0, 1])
    return "Ernie4_5_MoeForCausalLM", d.sizes(
        moe_num_experts=count, moe_k=per_row, moe_intermediate_size=d.wide(), moe_num_shared_experts=d.choice([0, 1, 2]), moe_layer_start_index=first,
        moe_layer_end_index=d.choice([-1, first, d.layers - 1]), moe_layer_interval=d.choice([1, 1, 2]), moe_norm_min=d.choice([1e-12, 0.8]), use_bias=d.coin()
    ) | d.act() | rope_of(d, d.head)


def minimax_m2(d):
    count, per_row = d.experts()
    rotary = d.choice([0.5, 1.0]) if d.head % 4 == 0 else 1.0
    return "MiniMaxM2ForCausalLM", d.sizes(head_dim=d.head, num_local_experts=count, num_experts_per_tok=per_row) | d.act() | rope_of(d, int(d.head * rotary), rotary)


def phimoe(d):
    count, _ = d.fitted().experts(least=2)
    original = d.choice([32, 4096])
    half = range(d.head // 2)
    long = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": original, "short_mscale": 1.2, "long_mscale": 1.1,
            "short_factor": [1 + 0.02 * i for i in half], "long_factor": [1 + 0.1 * i for i in half]}
    rope = {"rope_parameters": d.choice([long, {"rope_type": "default", "rope_theta": 10000.0}])}
    return "PhimoeForCausalLM", d.sizes(num_local_experts=count, num_experts_per_tok=2, router_jitter_noise=d.choice([0.01, 0.3]), attention_bias=d.coin(),
                                        lm_head_bias=d.coin(), sliding_window=d.choice([None, d.window]), tie_word_embeddings=False,
                                        original_max_position_embeddings=original) | d.act() | rope


def ministral3(d):
    yarn = {"rope_type": "yarn", "rope_theta": d.choice([1e4, 1e6]), "factor": 8.0, "original_max_position_embeddings": d.choice([16, 64]), "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": d.choice([1.0, 0.0, 0.5]), "llama_4_scaling_beta": d.choice([0.1, 0.5])}
    return "Ministral3ForCausalLM", d.sizes(head_dim=d.head, rope_parameters=yarn, sliding_window=d.choice([None, d.window])) | d.act()


def mistral3(d):
    name, text = d.choice([ministral3, mistral])(d)
    text |= {"model_type": "ministral3" if name.startswith("Min") else "mistral"}
    vision = {"model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 4, "image_size": 8,
              "patch_size": 4}
    return "Mistral3ForConditionalGeneration", {"text_config": text, "vision_config": vision, "image_token_index": 60, "tie_word_embeddings": text["tie_word_embeddings"]}


def mistral(d):
    return "MistralForCausalLM", d.sizes(head_dim=d.head, sliding_window=d.choice([None, d.window])) | d.act() | rope_of(d, d.head)


def smollm3(d):
    d.fitted()
    window = {"use_sliding_window": True, "sliding_window": d.window} if d.coin() else {}
    return "SmolLM3ForCausalLM", d.sizes(no_rope_layers=d.kinds(0, 1), attention_bias=d.coin(), mlp_bias=d.coin()) | window | d.act() | rope_of(d, d.head)


def olmo2(d):
    return "Olmo2ForCausalLM", d.fitted().sizes(attention_bias=d.coin()) | d.act() | rope_of(d, d.head)


def olmo3(d):
    d.fitted()
    ropes = {kind: rope_of(d, d.head)["rope_parameters"] for kind in ("sliding_attention", "full_attention")}
    if d.coin():
        ropes["sliding_attention"] = {"rope_type": "default", "rope_theta": 500.0}
    return "Olmo3ForCausalLM", d.sizes(attention_bias=d.coin(), sliding_window=d.window, layer_types=d.kinds("sliding_attention", "full_attention"),
                                       rope_parameters=ropes) | d.act()


def granite(d):
    return "GraniteForCausalLM", d.fitted().sizes(mlp_bias=d.coin()) | granite_factors(d) | d.act() | rope_of(d, d.head)


def seed_oss(d):
    return "SeedOssForCausalLM", d.sizes(head_dim=d.head, attention_bias=d.coin(), attention_out_bias=d.coin(), mlp_bias=d.coin()) | d.act() | rope_of(d, d.head)


def hunyuan_v1_dense(d):
    scaled = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 1.0, "alpha": d.choice([1.0, 1000.0])}}
    return "HunYuanDenseV1ForCausalLM", d.sizes(head_dim=d.head, attention_bias=d.coin()) | d.act() | d.choice([scaled, rope_of(d, d.head)])


def ernie4_5(d):
    return "Ernie4_5ForCausalLM", d.sizes(head_dim=d.head, use_bias=d.coin()) | d.act() | rope_of(d, d.head)


def exaone4(d):
    kinds = d.kinds("sliding_attention", "full_attention")
    windows = d.choice([{"sliding_window": None, "layer_types": ["full_attention"] * d.layers}, {"sliding_window": d.window, "layer_types": kinds},
                        {"sliding_window": d.window, "sliding_window_pattern": d.choice([2, 3])}])
    return "Exaone4ForCausalLM", d.sizes(head_dim=d.head) | windows | d.act() | rope_of(d, d.head)


def gemma(d):
    return "GemmaForCausalLM", d.sizes(head_dim=d.head, attention_bias=d.coin()) | d.act("hidden_activation") | rope_of(d, d.head)


def gemma4(d):
    d.head, wide = d.choice([8, 16, 24, 32]), d.choice([8, 16, 32, 48])
    d.layers = d.choice([2, 4, 5])
    kinds = d.kinds("sliding_attention", "full_attention")[:-1] + ["full_attention"]
    shared = d.choice([0, d.layers // 2]) if len(set(kinds)) == 2 and len(set(kinds[:d.layers - d.layers // 2])) == 2 else 0
    equal = d.coin()
    inputs = d.choice([6, 16] if shared else [0, 6, 16])
    c = d.sizes(
        head_dim=d.head, global_head_dim=wide, layer_types=kinds, sliding_window=d.window, num_kv_shared_layers=shared, attention_k_eq_v=equal,
        hidden_size_per_layer_input=inputs, use_double_wide_mlp=d.coin(), final_logit_softcapping=d.choice([None, 2.0]), attention_bias=False,
        rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                         "full_attention": {"rope_type": "proportional", "partial_rotary_factor": d.choice([0.25, 0.5, 1.0]), "rope_theta": 1000.0}})
    c["vocab_size_per_layer_input"] = c["vocab_size"]
    c["tie_word_embeddings"] = True
    if equal:
        c["num_global_key_value_heads"] = d.kv_heads
    if d.coin():
        count, per_row = d.experts()
        c |= {"enable_moe_block": True, "num_experts": count, "top_k_experts": per_row, "moe_intermediate_size": d.wide()}
    return "Gemma4ForCausalLM", c


def latent_sizes(d, **more):
    c = d.sizes(q_lora_rank=d.choice([None, 14, 24]), kv_lora_rank=d.choice([7, 16, 34]), qk_nope_head_dim=d.choice([5, 8, 16]),
                qk_rope_head_dim=d.choice([4, 6, 16]), v_head_dim=d.choice([7, 12, 16, 24]), attention_bias=d.coin())
    return c | {"num_key_value_heads": d.heads} | more


LATENT_ROPES = ("default", "yarn", "linear", "dynamic", "llama3")


def deepseek_v2(d):
    c = latent_sizes(d, qk_nope_head_dim=d.choice([6, 8, 16]), v_head_dim=d.choice([8, 12, 24]), kv_lora_rank=d.choice([8, 16, 34])) | sigmoid_experts(d)
    c |= {"topk_method": d.choice(["greedy", "group_limited_greedy"])}
    return "DeepseekV2ForCausalLM", c | d.act() | rope_of(d, c["qk_rope_head_dim"], kinds=LATENT_ROPES)


def deepseek_v3(d):
    c = latent_sizes(d, rope_interleave=d.coin()) | sigmoid_experts(d)
    return "DeepseekV3ForCausalLM", c | d.act() | rope_of(d, c["qk_rope_head_dim"], kinds=LATENT_ROPES)


def glm4_moe_lite(d):
    c = latent_sizes(d, rope_interleave=d.coin()) | sigmoid_experts(d) | {"mlp_layer_types": d.kinds("dense", "sparse")}
    del c["first_k_dense_replace"]
    return "Glm4MoeLiteForCausalLM", c | d.act() | rope_of(d, c["qk_rope_head_dim"], kinds=LATENT_ROPES)


def minicpm3(d):
    c = latent_sizes(d, scale_emb=d.choice([1, 12, 3]), scale_depth=d.choice([1.4, 0.7]), dim_model_base=d.choice([16, 64]), mlp_bias=False, tie_word_embeddings=False)
    return "MiniCPM3ForCausalLM", c | d.act() | rope_of(d, c["qk_rope_head_dim"], kinds=LATENT_ROPES + ("longrope",))


def delta_sizes(d):
    keys = d.choice([1, 2, 3])
    d.head = d.choice([8, 16, 24, 32, 64])
    rotary = d.choice([0.25, 0.5, 1.0])
    return d.sizes(
        head_dim=d.head, linear_num_key_heads=keys, linear_num_value_heads=keys * d.choice([1, 2, 3]), linear_key_head_dim=d.choice([1, 8, 12, 16, 32, 64]),
        linear_value_head_dim=d.choice([1, 6, 8, 16, 32, 64]), linear_conv_kernel_dim=d.choice([2, 3, 4, 4, 7]), attention_bias=d.coin(),
        layer_types=d.kinds("linear_attention", "linear_attention", "full_attention")) | rope_of(d, int(d.head * rotary), rotary, kinds=("default", "linear", "yarn", "llama3"))


def delta_experts(d):
    count, per_row = d.experts()
    return {"num_experts": count, "num_experts_per_tok": per_row, "moe_intermediate_size": d.wide(), "shared_expert_intermediate_size": d.wide()}


def qwen3_next(d):
    return "Qwen3NextForCausalLM", delta_sizes(d) | delta_experts(d) | {"decoder_sparse_step": d.choice([1, 1, 2]), "mlp_only_layers": d.subset(), "norm_topk_prob": d.coin()}


def qwen3_5(d):
    return "Qwen3_5ForCausalLM", delta_sizes(d)


def qwen3_5_moe(d):
    return "Qwen3_5MoeForCausalLM", delta_sizes(d) | delta_experts(d)


def mamba2(d):
    groups, head, heads = d.choice([1, 2, 3]), d.choice([4, 8, 12, 16]), d.choice([1, 2, 4])
    heads *= groups
    expand = d.choice([1, 2])
    hidden = heads * head // expand
    return "Mamba2ForCausalLM", SPECIAL | {
        "vocab_size": d.random.randrange(70, 300), "hidden_size": hidden, "expand": expand, "num_hidden_layers": d.layers, "num_heads": heads, "head_dim": head,
        "state_size": d.choice([4, 7, 16, 32]), "n_groups": groups, "chunk_size": d.choice([1, 8, 16, 256]), "conv_kernel": d.choice([2, 3, 4, 7]), "use_bias": d.coin(),
        "use_conv_bias": d.coin(), "tie_word_embeddings": d.coin(), "layer_norm_epsilon": d.choice([1e-5, 1e-2]), "hidden_act": d.choice(["silu", "silu", "gelu"]),
        "time_step_limit": d.choice([[0.0, float("inf")], [0.2, 0.9]]), "residual_in_fp32": d.coin()}


def granitemoehybrid(d):
    d.fitted()
    heads = d.choice([2, 4, 6])
    expand = 2
    d.hidden = -(-d.hidden // heads) * heads
    d.hidden = d.hidden // d.heads * d.heads
    while d.hidden * expand % heads or d.hidden % d.heads:
        d.hidden += 2
    count, per_row = d.choice([(0, 0), d.experts()])
    kinds = d.kinds("linear_attention", "linear_attention", "full_attention")
    rope = {"position_embedding_type": "rope"} | rope_of(d, d.hidden // d.heads) if d.coin() else {}
    c = d.sizes(num_local_experts=count, num_experts_per_tok=per_row, shared_intermediate_size=d.wide(), layer_types=kinds, mamba_n_heads=heads,
                mamba_d_head=d.hidden * expand // heads, mamba_expand=expand, mamba_n_groups=d.choice([1, 2]), mamba_d_state=d.choice([1, 4, 10, 16, 64]), mamba_d_conv=d.choice([2, 3, 4, 7]),
                mamba_chunk_size=d.choice([1, 7, 8, 32, 128]), time_step_limit=d.choice([STEPS, STEPS, [0.1, 0.5]]), mamba_conv_bias=d.coin(), mamba_proj_bias=d.coin())
    return "GraniteMoeHybridForCausalLM", c | granite_factors(d) | d.act() | rope


def nemotron_h(d):
    groups, head = d.choice([1, 2, 3]), d.choice([4, 8, 16])
    kinds = [d.choice(["linear_attention", "mlp", "full_attention", "moe", "linear_attention"]) for _ in range(d.choice([3, 5, 6]))]
    count, per_row = d.experts()
    split = d.choice([1, 1, 2]) if count % 2 == 0 and count >= 4 else 1
    return "NemotronHForCausalLM", {k: v for k, v in d.sizes().items() if k not in ("num_hidden_layers", "rms_norm_eps")} | {
        "layers_block_type": kinds, "head_dim": d.head, "mamba_num_heads": groups * d.choice([1, 2, 3]), "mamba_head_dim": head, "ssm_state_size": d.choice([1, 4, 9, 16, 64]),
        "n_groups": groups, "chunk_size": d.choice([8, 32]), "conv_kernel": d.choice([2, 3, 4, 7]), "use_conv_bias": d.coin(), "use_bias": d.coin(), "mlp_bias": d.coin(),
        "mamba_proj_bias": d.coin(), "attention_bias": d.coin(), "layer_norm_epsilon": d.choice([1e-5, 1e-2]), "time_step_min": d.choice([0.001, 0.3]),
        "n_routed_experts": count, "num_experts_per_tok": min(per_row, count // split), "n_group": split, "topk_group": d.choice([1, split]), "moe_intermediate_size": d.wide(),
        "n_shared_experts": d.choice([1, 2]), "moe_shared_expert_intermediate_size": d.wide(), "moe_latent_size": d.choice([None, 10, 24]), "norm_topk_prob": d.coin(),
        "routed_scaling_factor": d.choice([1.0, 2.5]), "mlp_hidden_act": d.choice(["relu2", "relu2", "silu", "gelu"])}


def falcon_h1(d):
    groups, head = d.choice([1, 2]), d.choice([4, 8, 16])
    heads = groups * d.choice([1, 2, 3])
    f = lambda: round(d.random.uniform(0.4, 1.6), 2)
    return "FalconH1ForCausalLM", d.sizes(
        head_dim=d.head, mamba_d_ssm=heads * head, mamba_n_heads=heads, mamba_d_head=head, mamba_n_groups=groups, mamba_d_state=d.choice([1, 4, 10, 16, 64]), mamba_d_conv=d.choice([2, 3, 4, 7]),
        mamba_chunk_size=d.choice([1, 7, 8, 32, 128]), time_step_limit=d.choice([STEPS, STEPS, [0.1, 0.5]]), mamba_conv_bias=d.coin(), mamba_proj_bias=d.coin(), mamba_rms_norm=d.coin(), mamba_norm_before_gate=d.coin(), projectors_bias=d.coin(),
        attention_bias=d.coin(), mlp_bias=d.coin(), embedding_multiplier=f(), lm_head_multiplier=f(), mlp_multipliers=[f(), f()], key_multiplier=f(), attention_in_multiplier=f(),
        attention_out_multiplier=f(), ssm_in_multiplier=f(), ssm_out_multiplier=f(), ssm_multipliers=[f() for _ in range(5)]) | d.act() | rope_of(d, d.head)


def lfm2(d):
    d.fitted()
    return "Lfm2ForCausalLM", {k: v for k, v in d.sizes().items() if k != "rms_norm_eps"} | {
        "layer_types": d.kinds("conv", "full_attention"), "conv_bias": d.coin(), "conv_L_cache": d.choice([2, 3, 4, 5]), "block_multiple_of": d.choice([1, 16, 32]),
        "block_ffn_dim_multiplier": d.choice([1.0, 1.5]), "block_auto_adjust_ff_dim": d.coin(), "norm_eps": d.choice([1e-5, 1e-2])} | rope_of(d, d.head)


def lfm2_moe(d):
    d.fitted()
    count, per_row = d.experts()
    return "Lfm2MoeForCausalLM", {k: v for k, v in d.sizes().items() if k != "rms_norm_eps"} | {
        "layer_types": d.kinds("conv", "full_attention"), "conv_bias": d.coin(), "conv_L_cache": d.choice([2, 3, 4, 5]), "norm_eps": d.choice([1e-5, 1e-2]),
        "num_experts": count, "num_experts_per_tok": per_row, "num_dense_layers": d.choice([0, 1, d.layers]), "moe_intermediate_size": d.wide(), "norm_topk_prob": d.coin(),
        "use_expert_bias": d.coin(), "routed_scaling_factor": d.choice([1.0, 2.0])} | rope_of(d, d.head)


FAMILIES = [mixtral, qwen2_moe, qwen3_moe, olmoe, gpt_oss, glm4_moe, granitemoe, granitemoeshared, ernie4_5_moe, minimax_m2, phimoe, ministral3, mistral3, smollm3,
            olmo2, olmo3, granite, seed_oss, hunyuan_v1_dense, ernie4_5, exaone4, gemma, gemma4, deepseek_v2, deepseek_v3, glm4_moe_lite, minicpm3, qwen3_next, qwen3_5,
            qwen3_5_moe, mamba2, granitemoehybrid, nemotron_h, falcon_h1, lfm2, lfm2_moe]
DRAWS = {draw.__name__: draw for draw in FAMILIES}
# Their recurrences run in chunks in transformers.
RECURRENT = ("qwen3_next", "qwen3_5", "mamba2", "granitemoehybrid", "nemotron_h", "falcon_h1")


def draw_case(seed, random, name):
    architecture, config = DRAWS[name](Draw(random))
    dtype = random.choice(["float32", "float16", "bfloat16"])
    return Case(f"{seed:04d}_{name}_{dtype}", architecture, config, "", dtype=dtype, prompt=LENGTH)


def skew(module, random, dtype):
    """Makes routers prefer: some experts get nearly all rows, others none."""
    import torch

    from .models import DTYPES

    kind = random.choice(["even", "few", "one"])
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            factors = torch.tensor([random.choice({"even": [1.0], "few": [0.1, 1.0, 4.0], "one": [0.02]}[kind]) for _ in range(tensor.shape[0] if tensor.dim() else 0)])
            if name.endswith(("gate.weight", "router.weight", "router.layer.weight", "router.proj.weight")) and tensor.dim() == 2 and "shared" not in name and "ffn" not in name:
                if kind == "one":
                    factors[0] = 8.0
                tensor.copy_((tensor * factors[:, None]).to(DTYPES[dtype]).float())
            if name.endswith(("correction_bias", "expert_bias")) and kind != "even":
                tensor.mul_(4.0)
