#!/usr/bin/env python3
"""Makes the draft heads of the tests: tiny random ones with logits of a plain PyTorch reference, and right ones.

    scripts/make_head_goldens.py --out tests/data/heads

MTP heads are added to models of tests/data/goldens. Needs what make_goldens.py needs.
"""

import argparse
import importlib
import json
import pathlib

import safetensors.torch
import torch
import transformers
from goldens import cases, delta_cases, latent_cases, mixture_cases
from goldens.gguf_export import write_gguf
from goldens.heads import Eagle3, Mtp, expected, load_target, randomize, save

GOLDENS = pathlib.Path(__file__).parent.parent / "tests/data/goldens"
CASES = {case.name: case for family in (cases, latent_cases, mixture_cases, delta_cases) for case in family.CASES}


def prompt_of(vocabulary, length=24):
    return torch.randint(3, vocabulary - 3, (length,), generator=torch.Generator().manual_seed(length)).tolist()


def mtp(out, name, layer_class, names, offset=0.0, own_ends=False, with_gguf=True):
    """Adds a head to a golden model. names(part): the checkpoint's name of a tensor of the head."""
    target, config = load_target(GOLDENS / name)
    weights = safetensors.torch.load_file(GOLDENS / name / "model.safetensors")
    modeling = importlib.import_module(layer_class.__module__)
    index = len(target.model.layers) - 1  # has experts; in Qwen3-Next it has attention
    head = Mtp(target, getattr(modeling, layer_class.__name__)(target.config, index), offset)
    randomize(head, 7, "Qwen3Next" if offset else "Llama")
    values = expected(head, target, prompt_of(config["vocab_size"]))
    for part, tensor in head.state_dict().items():
        for stored, piece in unstacked(part, tensor):
            weights[names(stored, target.config.num_hidden_layers)] = piece.to(torch.bfloat16)
    if own_ends:  # DeepSeek stores the shared matrices again
        layer = target.config.num_hidden_layers
        weights[f"model.layers.{layer}.embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
        weights[f"model.layers.{layer}.shared_head.head.weight"] = weights["lm_head.weight"].clone()
    if not offset:
        config["num_nextn_predict_layers"] = 1
    save(out / name, config, weights, values)
    if with_gguf:
        write_gguf(out / name / "model.gguf", CASES[name], config, weights)


def unstacked(part, tensor):
    """Experts as checkpoints store them: one tensor for each."""
    if part.endswith("experts.gate_up_proj"):
        for i, expert in enumerate(tensor):
            gate, up = expert.chunk(2)
            yield part.replace("gate_up_proj", f"{i}.gate_proj.weight"), gate
            yield part.replace("gate_up_proj", f"{i}.up_proj.weight"), up
    elif part.endswith("experts.down_proj"):
        for i, expert in enumerate(tensor):
            yield part.replace("down_proj", f"{i}.down_proj.weight"), expert
    else:
        yield part, tensor


def nextn_name(part, layer):
    renamed = {"norm.weight": "shared_head.norm.weight"}.get(part, part.removeprefix("layer."))
    return f"model.layers.{layer}.{renamed}"


def qwen_name(part, layer):
    parts = {"norm.weight": "norm.weight", "enorm.weight": "pre_fc_norm_embedding.weight",
             "hnorm.weight": "pre_fc_norm_hidden.weight", "eh_proj.weight": "fc.weight"}
    return "mtp." + parts.get(part, part.replace("layer.", "layers.0.", 1))


LLAMA = {"vocab_size": 96, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 8,
         "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 512,
         "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}


def llama(config):
    return transformers.LlamaForCausalLM._from_config(transformers.LlamaConfig(**config), attn_implementation="eager")


def llama_config(config, **more):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama"} | config | more


def eagle3(out):
    """A target of 8 layers, a head with a part of its vocabulary, and one with every switch changed."""
    target = randomize(llama(LLAMA), 3)
    save(out / "eagle3_target", llama_config(LLAMA), target.state_dict(), None)
    prompt = prompt_of(96)
    kept = sorted(torch.randperm(96, generator=torch.Generator().manual_seed(1))[:60].tolist())
    variants = {
        "eagle3": ({"draft_vocab_size": 60, "norm_before_residual": False, "max_position_embeddings": 16}, [2, 4, 5]),
        "eagle3_switches": ({"draft_vocab_size": 96, "norm_before_residual": True, "num_key_value_heads": 2,
                             "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 6]}}, [1, 4, 7]),
    }
    for name, (more, layers) in variants.items():
        config = LLAMA | {"num_hidden_layers": 1} | more
        internal = transformers.LlamaConfig(**config)
        internal._attn_implementation = "eager"
        head = randomize(Eagle3(target, internal, layers), 11)
        weights = head.state_dict()
        if name == "eagle3":
            head.d2t.copy_(torch.tensor(kept) - torch.arange(60))
            weights["t2d"] = torch.zeros(96, dtype=torch.bool).index_fill(0, torch.tensor(kept), True)
        else:
            del weights["d2t"]
            weights["embed_tokens.weight"] = target.model.embed_tokens.weight.detach().clone()
        values = expected(head, target, prompt)
        stored = {key: value.to(torch.bfloat16) if value.is_floating_point() else value for key, value in weights.items()}
        save(out / name, llama_config(config) | {"architectures": ["LlamaForCausalLMEagle3"]}, stored, values)


def right_eagle3(out):
    """The target's next token is a function of its last one. The head's attention finds the last token's embedding."""
    size, vocabulary = 64, 96
    generator = torch.Generator().manual_seed(5)
    table = torch.randn(vocabulary, size, generator=generator)
    order = torch.randperm(vocabulary, generator=generator)
    following = torch.empty(vocabulary, dtype=torch.long)
    following[order] = order.roll(-1)
    config = LLAMA | {"hidden_size": size, "num_hidden_layers": 3, "num_attention_heads": 1, "head_dim": size,
                      "eos_token_id": None}
    target = llama(config)
    with torch.no_grad():
        for name, parameter in target.named_parameters():
            parameter.fill_(1.0 if "norm" in name else 0.0)
        target.model.embed_tokens.weight.copy_(table)
        target.lm_head.weight[following] = table
    save(out / "right_eagle3_target", llama_config(config), bfloat16(target.state_dict()), None)
    one, zero = torch.eye(size), torch.zeros(size, size)
    layer = {"self_attn.q_proj": torch.cat((one, zero), 1), "self_attn.k_proj": torch.cat((one, zero), 1),
             "self_attn.v_proj": torch.cat((one, zero), 1), "self_attn.o_proj": 10 * one,
             "mlp.gate_proj": torch.zeros(24, size), "mlp.up_proj": torch.zeros(24, size),
             "mlp.down_proj": torch.zeros(size, 24), "input_layernorm": torch.ones(size),
             "hidden_norm": torch.ones(size), "post_attention_layernorm": torch.ones(size)}
    weights = {f"midlayer.{name}.weight": tensor for name, tensor in layer.items()}
    weights |= {"fc.weight": torch.cat((one, zero, zero), 1), "norm.weight": torch.ones(size),
                "lm_head.weight": target.lm_head.weight.detach()}
    config |= {"num_hidden_layers": 1, "draft_vocab_size": vocabulary, "norm_before_residual": True,
               "eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
    save(out / "right_eagle3", llama_config(config) | {"architectures": ["LlamaForCausalLMEagle3"]}, bfloat16(weights), None)


def right_mtp(out):
    """The head is the target itself: its layer is the target's only one, and it ignores the hidden states."""
    size = 32
    config = {"vocab_size": 96, "hidden_size": size, "intermediate_size": 48, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 512,
              "first_k_dense_replace": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
              "n_shared_experts": 1, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": None,
              "num_nextn_predict_layers": 1}
    kind = transformers.Glm4MoeForCausalLM
    target = randomize(kind._from_config(kind.config_class(**config), attn_implementation="eager"), 2)
    weights = dict(target.state_dict())
    table = weights["model.embed_tokens.weight"]
    weights["model.embed_tokens.weight"] = table / table.pow(2).mean(-1, keepdim=True).sqrt()
    for name in list(weights):  # a modest attention: the head lacks the first token
        if "o_proj" in name:
            weights[name] = weights[name] / 8
        if name.startswith("model.layers.0."):
            weights[name.replace("layers.0.", "layers.1.")] = weights[name].clone()
    ones = torch.ones(size)
    weights |= {"model.layers.1.enorm.weight": ones, "model.layers.1.hnorm.weight": ones.clone(),
                "model.layers.1.eh_proj.weight": torch.cat((torch.eye(size), torch.zeros(size, size)), 1),
                "model.layers.1.shared_head.norm.weight": weights["model.norm.weight"].clone()}
    save(out / "right_mtp", {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe"} | config, weights, None)


def bfloat16(weights):
    return {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/data/heads"))
    parser.add_argument("heads", nargs="*", help="all by default")
    arguments = parser.parse_args()
    out = arguments.out
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    models = transformers.models
    makers = {
        # llama.cpp's converter leaves DeepSeek's layer out.
        "deepseek_v3": lambda: mtp(out, "deepseek_v3", models.deepseek_v3.modeling_deepseek_v3.DeepseekV3DecoderLayer,
                                   nextn_name, own_ends=True, with_gguf=False),
        "glm4_moe": lambda: mtp(out, "glm4_moe", models.glm4_moe.modeling_glm4_moe.Glm4MoeDecoderLayer, nextn_name),
        "qwen3_next": lambda: mtp(out, "qwen3_next", models.qwen3_next.modeling_qwen3_next.Qwen3NextDecoderLayer,
                                  qwen_name, offset=1.0),
        "eagle3": lambda: eagle3(out),
        "right_eagle3": lambda: right_eagle3(out),
        "right_mtp": lambda: right_mtp(out),
    }
    for name in arguments.heads or makers:
        makers[name]()
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        print(f"{folder.name:24} {sum(path.stat().st_size for path in folder.iterdir()) / 1000:6.0f} kB")


if __name__ == "__main__":
    main()
