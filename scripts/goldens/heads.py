"""Draft heads with plain PyTorch references: EAGLE-3 and multi-token prediction (MTP).

A head reads the target's hidden state of position i and the token at i + 1, and predicts the token at i + 2. The
reference runs a decoder layer of transformers over whole sequences, without a cache.
"""

import importlib
import json
import shutil

import safetensors.torch
import torch
import transformers

from .models import EAGER, initial_value

CHAIN = 4  # tokens of a draft


def causal(length):
    return torch.full((length, length), -torch.inf).triu(1)[None, None]


def randomize(module, seed, kind="Llama"):
    """Random weights that bfloat16 holds exactly."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(initial_value(name, parameter, noise, kind).bfloat16().float())
        for name, buffer in sorted(module.named_buffers()):
            if name.endswith("correction_bias"):
                buffer.copy_((0.3 * torch.randn(buffer.shape, generator=generator)).bfloat16().float())
    return module.eval()


class Rms(torch.nn.Module):
    def __init__(self, size, epsilon, offset=0.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.epsilon, self.offset = epsilon, offset

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * (self.weight + self.offset)


class Mtp(torch.nn.Module):
    """The head of a checkpoint: combine([norm(embedding), norm(hidden)]), a decoder layer, norm, output matrix."""

    def __init__(self, target, layer, offset=0.0):
        super().__init__()
        config = target.config
        size, epsilon = config.hidden_size, config.rms_norm_eps
        self.enorm, self.hnorm, self.norm = (Rms(size, epsilon, offset) for _ in range(3))
        self.eh_proj = torch.nn.Linear(2 * size, size, bias=False)
        self.layer = layer
        # Not a submodule: its weights are the target's.
        self.target = [target]

    def embed(self, tokens):
        return self.target[0].model.embed_tokens(tokens)

    def head(self, hidden):
        return self.target[0].lm_head(hidden)

    def tokens(self, rows):
        return rows

    def targets(self, hidden_states, last):
        return last

    def forward(self, tokens, features, own):
        both = torch.cat((self.enorm(self.embed(tokens)), self.hnorm(features)), -1)[None]
        positions = torch.arange(len(tokens))[None]
        angles = self.target[0].model.rotary_emb(both, positions)
        hidden = self.layer(self.eh_proj(both), attention_mask=causal(len(tokens)), position_ids=positions,
                            position_embeddings=angles)
        hidden = self.norm((hidden[0] if isinstance(hidden, tuple) else hidden).reshape(len(tokens), -1))
        return self.head(hidden), hidden


class Eagle3(torch.nn.Module):
    def __init__(self, target, config, layers):
        super().__init__()
        modeling = importlib.import_module("transformers.models.llama.modeling_llama")
        size, epsilon = config.hidden_size, config.rms_norm_eps
        self.fc = torch.nn.Linear(3 * size, size, bias=False)
        self.midlayer = modeling.LlamaDecoderLayer(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            rows = getattr(self.midlayer.self_attn, name).out_features
            setattr(self.midlayer.self_attn, name, torch.nn.Linear(2 * size, rows, bias=False))
        self.midlayer.hidden_norm = Rms(size, epsilon)
        self.norm = Rms(size, epsilon)
        self.lm_head = torch.nn.Linear(size, config.draft_vocab_size, bias=False)
        self.rotary = [modeling.LlamaRotaryEmbedding(config)]
        self.target, self.layers, self.config = [target], layers, config
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.long))

    def tokens(self, rows):
        return rows + self.d2t[rows]

    def targets(self, hidden_states, last):
        return torch.cat([hidden_states[i] for i in self.layers], -1)

    def forward(self, tokens, features, own):
        """features: of the target; own: rows from that one on are this head's."""
        size = self.config.hidden_size
        stream = torch.cat((self.fc(features[:own]), features[own:, :size]))
        layer, embedded = self.midlayer, self.target[0].model.embed_tokens(tokens)
        both = torch.cat((layer.input_layernorm(embedded), layer.hidden_norm(stream)), -1)[None]
        if self.config.norm_before_residual:
            stream = layer.hidden_norm(stream)
        angles = self.rotary[0](both, torch.arange(len(tokens))[None])
        stream = stream + layer.self_attn(both, attention_mask=causal(len(tokens)), position_embeddings=angles)[0][0]
        stream = stream + layer.mlp(layer.post_attention_layernorm(stream))
        return self.lm_head(self.norm(stream)), stream


def expected(head, target, prompt):
    """Logits of the head behind the prompt's positions, and of the tokens of a draft."""
    with torch.no_grad():
        result = target.model(input_ids=torch.tensor(prompt)[None], output_hidden_states=True, use_cache=False)
        features = head.targets([h[0] for h in result.hidden_states], result.last_hidden_state[0])
        length = len(prompt) - 1
        features, tokens = features[:length], torch.tensor(prompt[1:])
        logits, own = head(tokens, features, length)
        steps, drafted = [logits[-1]], [head.tokens(logits[-1].argmax())]
        for _ in range(CHAIN - 1):
            last = torch.nn.functional.pad(own[-1], (0, features.shape[1] - own.shape[1]))
            features, tokens = torch.cat((features, last[None])), torch.cat((tokens, drafted[-1][None]))
            chained, own = head(tokens, features, length)
            steps.append(chained[-1])
            drafted.append(head.tokens(chained[-1].argmax()))
    return {"tokens": torch.tensor(prompt, dtype=torch.int32), "logits": logits.contiguous(),
            "chain": torch.stack(steps), "drafted": torch.stack(drafted).int()}


def load_target(folder):
    config = json.loads((folder / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    return kind.from_pretrained(folder, dtype=torch.float32, **EAGER).eval(), config


def save(folder, config, weights, values):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = {name: tensor.contiguous() for name, tensor in weights.items()}
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if values:
        safetensors.torch.save_file(values, folder / "expected.safetensors")
