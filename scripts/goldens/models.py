"""Builds the tiny models with random weights, and computes their logits and greedy tokens."""

import copy
import json
import re

import torch
import transformers

from .cases import GREEDY_TOKENS
from .chatglm import ChatGlm, as_glm

EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Model:
    """One model, from transformers or our own ChatGLM reference, computing in f32 independent of its stored format."""

    def __init__(self, case, changes=None):
        self.config = copy.deepcopy(case.config) | copy.deepcopy(changes or {})
        if case.architecture == "ChatGLMModel":
            self.module = ChatGlm(self.config)
        else:
            kind = getattr(transformers, case.architecture)
            self.module = kind._from_config(kind.config_class(**self.config), **EAGER)
        self.module.eval()

    @classmethod
    def from_config_file(cls, case, path):
        """The model that transformers builds from a config.json, to check the file."""
        model = cls(case)
        kind = getattr(transformers, case.architecture)
        config = kind.config_class.from_dict(kind.config_class._dict_from_json_file(path))
        model.module = kind._from_config(config, **EAGER).float().eval()
        return model

    def randomize(self, seed, dtype):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in sorted(self.module.named_parameters()):
                noise = torch.randn(parameter.shape, generator=generator)
                value = initial_value(name, parameter, noise, self.module.__class__.__name__)
                parameter.copy_(value.to(DTYPES[dtype]).float())
            for name, buffer in sorted(self.module.named_buffers()):
                if name.endswith("layer_scalar"):
                    buffer.copy_((1 + 0.3 * torch.randn(1, generator=generator)).to(DTYPES[dtype]).float())
                if name.endswith(("correction_bias", "expert_bias")):  # of a router's choice; a parameter in some models
                    buffer.copy_((0.3 * torch.randn(buffer.shape, generator=generator)).to(DTYPES[dtype]).float())

    def logits(self, tokens):
        """[n, vocabulary] for a list of n tokens."""
        with torch.no_grad():
            ids = torch.tensor(tokens)
            if isinstance(self.module, ChatGlm):
                return self.module(ids)
            return self.module(input_ids=ids[None], use_cache=False).logits[0]

    def greedy(self, tokens, least_lead, forbidden):
        """Greedy tokens, each from a pass over the whole sequence, and the smallest lead of a winner.

        The lead is relative to the largest logit. None if a lead is too small or a token is forbidden.
        """
        tokens, made, smallest = list(tokens), [], 1.0
        for _ in range(GREEDY_TOKENS):
            row = self.logits(tokens)[-1]
            best = row.topk(2)
            lead = ((best.values[0] - best.values[1]) / row.abs().max()).item()
            if lead < least_lead or best.indices[0].item() in forbidden:
                return None
            smallest = min(smallest, lead)
            made.append(best.indices[0].item())
            tokens.append(made[-1])
        return made, smallest

    def generate(self, tokens):
        """The same through transformers' own cached generation; None if it is unavailable."""
        # transformers' step with a cache ignores the limits of Mamba-2's time step.
        if isinstance(self.module, ChatGlm) or "time_step_limit" in self.config or "time_step_min" in self.config:
            return None
        if set(self.config.get("layer_types") or ()) == {"conv"}:
            return None  # its generation asks an attention layer for the length
        with torch.no_grad():
            output = self.module.generate(
                torch.tensor(tokens)[None],
                do_sample=False,
                max_new_tokens=GREEDY_TOKENS,
                eos_token_id=None,
                pad_token_id=0,
                attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
            )
        return output[0, len(tokens) :].tolist()


NORM = re.compile(r"(norm|norms\.\d+|ln_\w)\.weight$")


def initial_value(name, parameter, noise, kind):
    """Weights that make every part of the model matter: sharp attention, norms away from 1 and biases away from 0."""
    gemma = kind.startswith("Gemma")
    if parameter.dim() == 1 or NORM.search(name):
        stored_minus_one = (gemma and not kind.startswith("Gemma4")) or kind.startswith("NemotronFor")
        stored_minus_one |= kind.startswith(("Qwen3Next", "Qwen3_5")) and "linear_attn" not in name
        return (1.0 if NORM.search(name) and not stored_minus_one else 0.0) + 0.3 * noise
    if "embed" in name or "wte" in name or "wpe" in name:
        # Gemma scales its embedding up and ties it to the output: a large one would only repeat its input.
        return (0.08 if gemma else 1.0 if "positions" in name or "wpe" in name else 0.3) * noise
    inputs = noise.shape[0] if kind.startswith("GPT2") and "lm_head" not in name else noise.shape[-1]
    return 1.5 * noise / inputs**0.5


def check_with_glm(case, model, tokens):
    """Compares our ChatGLM reference with transformers' Glm, which computes the same under other names."""
    arguments, state = as_glm(model.config, model.module.state_dict())
    glm = transformers.GlmForCausalLM._from_config(transformers.GlmConfig(**arguments), attn_implementation="eager")
    glm.load_state_dict(state)
    with torch.no_grad():
        other = glm.eval()(input_ids=torch.tensor(tokens)[None]).logits[0]
    ours = model.logits(tokens)
    error = ((ours - other).abs().max() / other.abs().max()).item()
    if error > 1e-5:
        raise SystemExit(f"{case.name}: the reference is {error:.1e} away from transformers' Glm")
