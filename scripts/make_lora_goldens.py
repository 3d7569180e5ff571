#!/usr/bin/env python3
"""Makes the adapters of the tests: random LoRAs of golden models with the logits that PEFT computes.

    scripts/make_lora_goldens.py --goldens tests/data/goldens --out tests/data/loras [CASE...]

Needs peft beside the packages of make_goldens.py. Each case is a folder with a PEFT adapter, the same adapter as
llama.cpp's convert_lora_to_gguf.py writes it (adapter.gguf, where the model has a GGUF file too) and expected.safetensors
(`tokens`, and `logits` of every position).
"""

import argparse
import dataclasses
import json
import pathlib
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


PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = [
    Case("llama", "llama_gqa", {"r": 4, "lora_alpha": 6, "target_modules": PROJECTIONS}),
    Case("llama_patterns", "llama_gqa", {
        "r": 5, "lora_alpha": 7, "target_modules": r".*\.(q_proj|v_proj|up_proj|down_proj)",
        "rank_pattern": {r"layers\.1\.self_attn\.q_proj": 9, "up_proj": 1}, "alpha_pattern": {"v_proj": 20},
        "use_rslora": True}, gguf=False),
    Case("llama_tied_ends", "llama_mqa_tied", {
        "r": 8, "lora_alpha": 8, "use_rslora": True, "target_modules": ["embed_tokens", "lm_head", "k_proj"]}, gguf=False),
    Case("llama_ends", "llama_gqa", {"r": 3, "lora_alpha": 5, "target_modules": ["embed_tokens", "lm_head", "gate_proj"]}),
    Case("qwen3", "qwen3", {"r": 16, "lora_alpha": 16, "target_modules": "all-linear"}),
    Case("gemma3", "gemma3", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "gate_proj", "embed_tokens"]}),
    Case("qwen3_moe", "qwen3_moe", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}),
    Case("qwen3_moe_router", "qwen3_moe", {"r": 3, "lora_alpha": 12, "target_modules": ["v_proj"], "target_parameters": ["mlp.gate.weight"]}),
    Case("phi3", "phi3_sliding_window", {
        "r": 6, "lora_alpha": 6, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}),
    Case("gpt2", "gpt2", {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    Case("gpt_neox", "gpt_neox", {"r": 4, "lora_alpha": 8, "target_modules": ["query_key_value", "dense_4h_to_h"]},
         gguf=False),
]


def permuted(rows, heads):
    """The order that llama.cpp's converter gives the rows of q and k: rotary pairs side by side."""
    n, rank = rows.shape
    return rows.reshape(heads, 2, n // heads // 2, rank).transpose(1, 2).reshape(n, rank)


def write_gguf(case, config, adapter, weights, path):
    model_arch = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen3": gguf.MODEL_ARCH.QWEN3, "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
                  "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE, "phi3": gguf.MODEL_ARCH.PHI3, "gpt2": gguf.MODEL_ARCH.GPT2}[config.model_type]
    names = gguf.get_tensor_name_map(model_arch, config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[model_arch])
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(adapter["lora_alpha"]))
    for name, tensor in sorted(weights.items()):
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
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **case.lora))
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_" in name:
                weights.copy_(torch.randn(weights.shape, generator=generator) * 0.15)
        logits = model.eval()(tokens).logits[0]
    change = ((logits - plain).abs().max() / logits.abs().max()).item()
    if change < 0.05:
        raise SystemExit(f"{case.name}: the adapter changes the logits by {change:.1e} only")
    # The tests are about names: PEFT would also store the base weights of embeddings.
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    config_path = folder / "adapter_config.json"
    config = json.loads(config_path.read_text())
    config["base_model_name_or_path"] = case.golden
    config_path.write_text(json.dumps(config, indent=2) + "\n")
    weights = safetensors.torch.load_file(folder / "adapter_model.safetensors")
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
