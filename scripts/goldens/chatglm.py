"""A plain reference of ChatGLM2 and GLM-4-9B, which transformers does not include.

Written from the published description of the architecture. Parameter names are those of the checkpoints, so that
state_dict() is the content of model.safetensors.
"""

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Rotary(nn.Module):
    """Angles for the first half of each head; the other half is not rotated."""

    def __init__(self, rotated, rope_ratio):
        super().__init__()
        exponents = torch.arange(0, rotated, 2) / rotated
        # Checkpoints contain this buffer, but the model computes its own frequencies from rope_ratio.
        self.register_buffer("inv_freq", 1.0 / 10000**exponents)
        self.frequencies = 1.0 / (10000 * rope_ratio) ** exponents

    def forward(self, x):
        """x: [tokens, heads, head_dim]; adjacent elements (2i, 2i + 1) form one pair."""
        count = self.frequencies.numel()
        angles = torch.outer(torch.arange(x.shape[0], dtype=torch.float32), self.frequencies)[:, None, :]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        even, odd = x[..., : 2 * count : 2], x[..., 1 : 2 * count : 2]
        turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)
        return torch.cat((turned, x[..., 2 * count :]), dim=-1)


class SelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.head_dim = config["num_attention_heads"], config["kv_channels"]
        self.groups = config["multi_query_group_num"] if config["multi_query_attention"] else self.heads
        bias = config["add_bias_linear"]
        width = self.head_dim * (self.heads + 2 * self.groups)
        self.query_key_value = nn.Linear(config["hidden_size"], width, bias=bias or config["add_qkv_bias"])
        self.dense = nn.Linear(self.head_dim * self.heads, config["hidden_size"], bias=bias)

    def forward(self, x, rotary):
        sizes = [n * self.head_dim for n in (self.heads, self.groups, self.groups)]
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)) for part in self.query_key_value(x).split(sizes, dim=-1))
        q, k = rotary(q), rotary(k)
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.head_dim**0.5
        future = torch.ones(x.shape[0], x.shape[0], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.dense(torch.einsum("hqk,khd->qhd", weights, v).flatten(1))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner, bias = config["hidden_size"], config["ffn_hidden_size"], config["add_bias_linear"]
        self.dense_h_to_4h = nn.Linear(hidden, 2 * inner, bias=bias)
        self.dense_4h_to_h = nn.Linear(inner, hidden, bias=bias)

    def forward(self, x):
        gate, up = self.dense_h_to_4h(x).chunk(2, dim=-1)
        return self.dense_4h_to_h(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = RMSNorm(config["hidden_size"], config["layernorm_epsilon"])
        self.self_attention = SelfAttention(config)
        self.post_attention_layernorm = RMSNorm(config["hidden_size"], config["layernorm_epsilon"])
        self.mlp = Mlp(config)
        self.residual_after_norm = config["apply_residual_connection_post_layernorm"]

    def forward(self, x, rotary):
        normed = self.input_layernorm(x)
        x = (normed if self.residual_after_norm else x) + self.self_attention(normed, rotary)
        normed = self.post_attention_layernorm(x)
        return (normed if self.residual_after_norm else x) + self.mlp(normed)


class ChatGlm(nn.Module):
    """tokens [n] -> logits [n, padded_vocab_size]."""

    def __init__(self, config):
        super().__init__()
        vocabulary, hidden = config["padded_vocab_size"], config["hidden_size"]
        self.transformer = nn.ModuleDict()
        self.transformer["embedding"] = nn.ModuleDict({"word_embeddings": nn.Embedding(vocabulary, hidden)})
        self.transformer["rotary_pos_emb"] = Rotary(config["kv_channels"] // 2, config.get("rope_ratio", 1))
        self.transformer["encoder"] = nn.ModuleDict(
            {
                "layers": nn.ModuleList(Block(config) for _ in range(config["num_layers"])),
                "final_layernorm": RMSNorm(hidden, config["layernorm_epsilon"]),
            }
        )
        self.transformer["output_layer"] = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens):
        parts = self.transformer
        x = parts["embedding"]["word_embeddings"](tokens)
        for block in parts["encoder"]["layers"]:
            x = block(x, parts["rotary_pos_emb"])
        return parts["output_layer"](parts["encoder"]["final_layernorm"](x))


def as_glm(config, weights):
    """The same model in transformers' Glm architecture, to cross-check this reference.

    Returns the keyword arguments of GlmConfig and its state dict. Glm has no switch for the residual after the norm.
    """
    heads, head_dim = config["num_attention_heads"], config["kv_channels"]
    groups = config["multi_query_group_num"]
    arguments = {
        "vocab_size": config["padded_vocab_size"],
        "hidden_size": config["hidden_size"],
        "intermediate_size": config["ffn_hidden_size"],
        "num_hidden_layers": config["num_layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": head_dim,
        "rms_norm_eps": config["layernorm_epsilon"],
        "attention_bias": config["add_qkv_bias"],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0 * config.get("rope_ratio", 1),
            "partial_rotary_factor": 0.5,
        },
        "pad_token_id": None,
    }
    names = {
        "embedding.word_embeddings": "model.embed_tokens",
        "encoder.final_layernorm": "model.norm",
        "output_layer": "lm_head",
        "encoder.layers": "model.layers",
        "self_attention.dense": "self_attn.o_proj",
        "mlp.dense_h_to_4h": "mlp.gate_up_proj",
        "mlp.dense_4h_to_h": "mlp.down_proj",
    }
    state = {}
    for name, tensor in weights.items():
        name = name.removeprefix("transformer.")
        for old, new in names.items():
            name = name.replace(old, new)
        if "query_key_value" in name:
            parts = tensor.split([heads * head_dim, groups * head_dim, groups * head_dim])
            for letter, part in zip("qkv", parts):
                state[name.replace("self_attention.query_key_value", f"self_attn.{letter}_proj")] = part
        elif "inv_freq" not in name:
            state[name] = tensor
    return arguments, state
