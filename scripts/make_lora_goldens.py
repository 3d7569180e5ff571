#!/usr/bin/env python3
"""Makes the adapters of the tests: random LoRAs of golden models with the logits that PEFT computes.

    scripts/make_lora_goldens.py --goldens tests/data/goldens --out tests/data/loras [CASE...]

Needs peft beside the packages of make_goldens.py. Each case is a folder with a PEFT adapter, the same adapter as
llama.cpp's convert_lora_to_gguf.py writes it (adapter.gguf, where the model has a GGUF file too) and expected.safetensors
(`tokens`, and `logits` of every position).

transformers 5 has the experts of a layer in stacked parameters, which PEFT adapts as `target_parameters`. Adapters with a
pair for each expert, as transformers 4 names them, are written here, and their products are added to the parameters.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import zlib

import gguf
import peft
import safetensors.torch
import torch
import transformers


@dataclasses.dataclass
class Case:
    name: str
    golden: str
    lora: dict  # settings of LoraConfig
    gguf: bool = True
    each: str = ""  # a pair for each expert: its module, with {} for the number; the matrices are target_modules
    changed: list = dataclasses.field(default_factory=list)  # these experts alone
    old: bool = False  # stacked experts as PEFT before 0.19.1 stored them
    bases: bool = False  # with the base weights of embeddings, as PEFT saves them unless told otherwise


PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
CASES = [
    Case("llama", "llama_gqa", {"r": 4, "lora_alpha": 6, "target_modules": PROJECTIONS}),
    Case("llama_patterns", "llama_gqa", {
        "r": 5, "lora_alpha": 7, "target_modules": r".*\.(q_proj|v_proj|up_proj|down_proj)",
        "rank_pattern": {r"layers\.1\.self_attn\.q_proj": 9, "up_proj": 1}, "alpha_pattern": {"v_proj": 20},
        "use_rslora": True}, gguf=False),
    Case("llama_tied_ends", "llama_mqa_tied", {
        "r": 8, "lora_alpha": 8, "use_rslora": True, "target_modules": ["embed_tokens", "lm_head", "k_proj"]}, gguf=False),
    Case("llama_ends", "llama_gqa", {"r": 3, "lora_alpha": 5, "target_modules": ["embed_tokens", "lm_head", "gate_proj"]},
         bases=True),
    Case("qwen3", "qwen3", {"r": 16, "lora_alpha": 16, "target_modules": "all-linear"}),
    Case("gemma3", "gemma3", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "gate_proj", "embed_tokens"]}),
    Case("qwen3_moe", "qwen3_moe", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}),
    Case("qwen3_moe_router", "qwen3_moe", {"r": 3, "lora_alpha": 12, "target_modules": ["v_proj"], "target_parameters": ["mlp.gate.weight"]}),
    Case("qwen3_moe_router_patterns", "qwen3_moe", {
        "r": 3, "lora_alpha": 12, "target_modules": ["v_proj"], "target_parameters": ["mlp.gate.weight"],
        "rank_pattern": {"mlp.gate.weight": 2}, "alpha_pattern": {"mlp.gate.weight": 30, "mlp.gate": 2}}, gguf=False),
    Case("qwen3_moe_experts", "qwen3_moe", {"r": 3, "lora_alpha": 6, "target_modules": ["q_proj"], "target_parameters": EXPERTS}),
    Case("qwen2_moe_down", "qwen2_moe", {
        "r": 4, "lora_alpha": 8, "target_modules": ["up_proj", "shared_expert_gate"], "target_parameters": ["mlp.experts.down_proj"]}),
    Case("qwen3_moe_old", "qwen3_moe", {
        "r": 4, "lora_alpha": 8, "target_modules": [], "target_parameters": ["mlp.experts.down_proj"]}, gguf=False, old=True),
    Case("olmoe_patterns", "olmoe", {
        "r": 2, "lora_alpha": 5, "use_rslora": True, "target_modules": [], "target_parameters": [
            "mlp.experts.gate_up_proj", "model.layers.1.mlp.experts.down_proj"],
        "rank_pattern": {r"layers\.0\.mlp\.experts\.gate_up_proj": 5}}, gguf=False),
    Case("gpt_oss", "gpt_oss", {"r": 4, "lora_alpha": 8, "target_modules": ["v_proj"], "target_parameters": EXPERTS}),
    Case("gemma4_experts", "gemma4_experts", {"r": 2, "lora_alpha": 4, "target_modules": [], "target_parameters": [
        "experts.gate_up_proj", "experts.down_proj"]}, gguf=False),
    Case("nemotron_h_moe", "nemotron_h_moe", {"r": 2, "lora_alpha": 4, "target_modules": [], "target_parameters": [
        "mixer.experts.up_proj", "mixer.experts.down_proj"]}, gguf=False),
    Case("mixtral_each", "mixtral", {"r": 4, "lora_alpha": 8, "target_modules": ["w1", "w2", "w3"]},
         each="block_sparse_moe.experts.{}"),
    Case("qwen3_moe_some", "qwen3_moe", {
        "r": 3, "lora_alpha": 9, "use_rslora": True, "target_modules": ["gate_proj", "down_proj"],
        "rank_pattern": {r"experts\.2\.gate_proj": 6}, "alpha_pattern": {r"layers\.1\.mlp\.experts\.\d+\.down_proj": 20}},
         gguf=False, each="mlp.experts.{}", changed=[0, 2, 5]),
    Case("phi3", "phi3_sliding_window", {
        "r": 6, "lora_alpha": 6, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}),
    Case("granite_shared", "granitemoeshared", {"r": 3, "lora_alpha": 6, "target_modules": ["shared_mlp.input_linear"]}, gguf=False),
    Case("gpt2", "gpt2", {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    Case("gpt_neox", "gpt_neox", {"r": 4, "lora_alpha": 8, "target_modules": ["query_key_value", "dense_4h_to_h"]},
         gguf=False),
]


def permuted(rows, heads):
    """The order that llama.cpp's converter gives the rows of q and k: rotary pairs side by side."""
    n, rank = rows.shape
    return rows.reshape(heads, 2, n // heads // 2, rank).transpose(1, 2).reshape(n, rank)


MATRICES = {"gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "down_proj": "down", "w2": "down"}


def stacked_experts(case, config, adapter, weights):
    """The matrices of experts as GGUF files have them: [experts, rank, k] and [experts, n, rank]."""
    stacks = {}
    for name in sorted(weights):
        layer, _, tail = name.partition(".experts.")
        if not tail.endswith("lora_A.weight"):
            continue
        layer = re.search(r"layers\.(\d+)", layer)[1]
        a, b = weights[name].float(), weights[name.replace("lora_A", "lora_B")].float()
        if case.each:  # "3.w1.lora_A.weight"
            stacks.setdefault((layer, MATRICES[tail.split(".")[1]]), {})[int(tail.split(".")[0])] = (a, b)
            continue
        r = adapter["r"]
        experts = a.shape[0] // r
        a = a.reshape(experts, r, -1)
        b = b.reshape(b.shape[0], r, experts).permute(2, 0, 1)
        if tail.startswith("base_layer"):  # gate_up_proj, within the wrapper of down_proj
            halves = (b[:, ::2], b[:, 1::2]) if config.model_type == "gpt_oss" else b.chunk(2, 1)
            for matrix, half in zip(("gate", "up"), halves):
                stacks[layer, matrix] = {e: (a[e], half[e]) for e in range(experts)}
        else:
            stacks[layer, "down"] = {e: (a[e], b[e]) for e in range(experts)}
    for (layer, matrix), pairs in stacks.items():
        for i, end in enumerate(("lora_a", "lora_b")):
            yield f"blk.{layer}.ffn_{matrix}_exps.weight.{end}", torch.stack([pairs[e][i] for e in sorted(pairs)])


def matching(patterns, module, usual):
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), usual)


def adapt_each(case, model, generator):
    """Adds a random pair to each matrix of each expert. Returns the adapter's config and its tensors."""
    config = peft.LoraConfig(task_type="CAUSAL_LM", **case.lora)
    experts = model.config.num_local_experts
    weights = {}
    for name, parameter in model.named_parameters():
        layer, _, stacked = name.partition(".mlp.experts.")
        if not stacked:
            continue
        for e in case.changed or range(experts):
            for matrix in sorted(config.target_modules):
                if (MATRICES[matrix] == "down") != (stacked == "down_proj"):
                    continue
                half = parameter.shape[1] // 2
                rows = {"gate": slice(0, half), "up": slice(half, None), "down": slice(None)}[MATRICES[matrix]]
                module = f"{layer}.{case.each.format(e)}.{matrix}"
                r = matching(config.rank_pattern, module, config.r)
                scale = matching(config.alpha_pattern, module, config.lora_alpha) / (r**0.5 if config.use_rslora else r)
                a = torch.randn(r, parameter.shape[2], generator=generator) * 0.15
                b = torch.randn(parameter[e, rows].shape[0], r, generator=generator) * 0.15
                parameter[e, rows] += scale * b @ a
                weights[f"base_model.model.{module}.lora_A.weight"] = a
                weights[f"base_model.model.{module}.lora_B.weight"] = b
    return config, weights


def as_old(weights, r):
    """What PEFT stored while it took [experts, n, k] for [experts, k, n]: A has the columns of B, and B the rows of A."""
    swapped = {}
    for name in weights:
        if not name.endswith("lora_A.weight"):
            continue
        a, b = weights[name], weights[name.replace("lora_A", "lora_B")]
        experts = a.shape[0] // r
        swapped[name] = b.reshape(-1, r, experts).permute(2, 1, 0).reshape(experts * r, -1).contiguous()
        swapped[name.replace("lora_A", "lora_B")] = a.reshape(experts, r, -1).permute(2, 1, 0).reshape(-1, r * experts).contiguous()
    return swapped


def write_gguf(case, config, adapter, weights, path):
    model_arch = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen3": gguf.MODEL_ARCH.QWEN3, "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
                  "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE, "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE, "mixtral": gguf.MODEL_ARCH.LLAMA,
                  "gpt_oss": gguf.MODEL_ARCH.GPT_OSS, "phi3": gguf.MODEL_ARCH.PHI3, "gpt2": gguf.MODEL_ARCH.GPT2}[config.model_type]
    names = gguf.get_tensor_name_map(model_arch, config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[model_arch])
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(adapter["lora_alpha"]))
    for name, tensor in stacked_experts(case, config, adapter, weights):
        writer.add_tensor(name, tensor.contiguous().float().numpy())
    for name, tensor in sorted(weights.items()):
        if ".experts." in name:
            continue
        base = name.removeprefix("base_model.model.")
        for suffix, end in ((".lora_A.weight", ".lora_a"), (".lora_B.weight", ".lora_b"),
                            (".lora_embedding_A", ".lora_a"), (".lora_embedding_B", ".lora_b")):
            if not base.endswith(suffix):
                continue
            mapped = names.get_name(base.removesuffix(suffix)) + ".weight"
            if suffix == ".lora_embedding_A":
                tensor = tensor.T
            if end == ".lora_b" and config.model_type == "llama" and ".attn_q." in mapped:
                tensor = permuted(tensor, config.num_attention_heads)
            if end == ".lora_b" and config.model_type == "llama" and ".attn_k." in mapped:
                tensor = permuted(tensor, config.num_key_value_heads)
            writer.add_tensor(mapped + end, tensor.contiguous().float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(case, goldens, out):
    folder = out / case.name
    folder.mkdir(parents=True, exist_ok=True)
    base = transformers.AutoModelForCausalLM.from_pretrained(goldens / case.golden, dtype=torch.float32,
                                                             attn_implementation="eager")
    tokens = safetensors.torch.load_file(goldens / case.golden / "expected.safetensors")["tokens"].long()[None]
    with torch.no_grad():
        plain = base(tokens).logits[0]
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    with torch.no_grad():
        if case.each:
            written, weights = adapt_each(case, base, generator)
            logits = base(tokens).logits[0]
        else:
            model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **case.lora))
            for name, weights in model.named_parameters():
                if "lora_" in name:
                    weights.copy_(torch.randn(weights.shape, generator=generator) * 0.15)
            logits = model.eval()(tokens).logits[0]
    change = ((logits - plain).abs().max() / logits.abs().max()).item()
    if change < 0.05:
        raise SystemExit(f"{case.name}: the adapter changes the logits by {change:.1e} only")
    if case.each:
        written.save_pretrained(folder)
        safetensors.torch.save_file(weights, folder / "adapter_model.safetensors")
    else:
        model.save_pretrained(folder, save_embedding_layers=case.bases)
    (folder / "README.md").unlink(missing_ok=True)
    config_path = folder / "adapter_config.json"
    config = json.loads(config_path.read_text())
    config["base_model_name_or_path"] = case.golden
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()  # PEFT writes a set
    config_path.write_text(json.dumps(config, indent=2) + "\n")
    weights = safetensors.torch.load_file(folder / "adapter_model.safetensors")
    if case.old:
        config_path.write_text(json.dumps({**config, "peft_version": "0.18.1"}, indent=2) + "\n")
        safetensors.torch.save_file(as_old(weights, case.lora["r"]), folder / "adapter_model.safetensors")
    if case.gguf:
        write_gguf(case, base.config, config, weights, folder / "adapter.gguf")
    safetensors.torch.save_file({"tokens": tokens[0].to(torch.int32), "logits": logits.contiguous()},
                                folder / "expected.safetensors")
    print(f"{case.name}: {len(weights)} tensors, the logits change by {change:.2f}")
    return {"name": case.name, "golden": case.golden}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--goldens", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    index = args.out / "cases.json"
    kept = {entry["name"]: entry for entry in json.loads(index.read_text())} if index.exists() else {}
    for case in CASES:
        if not args.cases or case.name in args.cases:
            kept[case.name] = make(case, args.goldens, args.out)
    index.write_text(json.dumps([kept[case.name] for case in CASES if case.name in kept], indent=1) + "\n")


if __name__ == "__main__":
    main()
