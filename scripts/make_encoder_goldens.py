#!/usr/bin/env python3
"""Makes the golden encoders of the tests: tiny random models with the vectors that transformers gives.

    scripts/make_encoder_goldens.py --out tests/data/encoders [CASE...]

Needs the same packages as make_goldens.py. Each case is a sentence-transformers folder, and model.gguf as llama.cpp's
converter writes it. expected.safetensors holds `tokens` of all inputs one after the other, their `lengths`, the index
`second` where the second text of a pair begins (0: one text), and `results`, one row for each input.
"""

import argparse
import json
import pathlib
import shutil
import string
import tempfile
import zlib

import safetensors.torch
import tokenizers
import torch
import transformers
from goldens.encoder_cases import CASES
from goldens.encoder_gguf import write_gguf

LENGTHS = [1, 7, 70, 128, 33]
TOLERANCE = 1e-4
VISIBLE = 1e-2
WORDS = ["the", "cat", "dog", "##s", "##ing", "sky", "blue", "is", "sat", "mat", "on", "##ed", "\u65e5", "\u672c", "\u00fcber"]
VOCABULARY = (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(string.ascii_lowercase)
              + ["##" + c for c in string.ascii_lowercase] + list("0123456789") + list(".,!?'-") + WORDS)


def write_tokenizer(folder):
    """A small WordPiece tokenizer with BERT's normalizer."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece({t: i for i, t in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(VOCABULARY[:5])
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)


def build(case, changes=None):
    kind = getattr(transformers, case.architecture)
    return kind._from_config(kind.config_class(**(case.config | (changes or {}))), attn_implementation="eager").eval().float()


def randomize(module, generator):
    """Sharp attention, norms away from 1 and biases away from 0."""
    minus_one = module.__class__.__name__.startswith("Gemma")
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            norm = "norm" in name.lower() and name.endswith("weight")
            if parameter.dim() == 1:
                parameter.copy_((1.0 if norm and not minus_one else 0.0) + 0.3 * noise)
            elif "embed" in name:
                parameter.copy_((0.08 if minus_one else 0.5) * noise)
            else:
                parameter.copy_(1.5 * noise / noise.shape[-1] ** 0.5)


def result(case, module, dense, tokens, second):
    """What sentence-transformers or a cross-encoder gives for one input."""
    ids = torch.tensor(tokens)[None]
    extra = {}
    if second:
        extra["token_type_ids"] = (torch.arange(len(tokens)) >= second).long()[None]
    with torch.no_grad():
        output = module(input_ids=ids, attention_mask=torch.ones_like(ids), **extra)
        if not case.pooling:
            return output.logits[0]
        rows = output.last_hidden_state[0]
        x = {"cls": rows[0], "mean": rows.mean(0), "lasttoken": rows[-1]}[case.pooling]
        for (_, tanh), (weight, bias) in zip(case.dense, dense):
            x = weight @ x + bias
            x = torch.tanh(x) if tanh else x
        return x / x.norm() if case.normalise else x


def make_dense(case, generator):
    layers, width = [], case.config["hidden_size"]
    for i, (outputs, tanh) in enumerate(case.dense):
        bias = torch.randn(outputs, generator=generator) * (0.3 if tanh else 0.0)
        layers.append((torch.randn(outputs, width, generator=generator) / width**0.5, bias))
        width = outputs
    return layers


def write_modules(case, folder, dense):
    """modules.json and the modules' folders, as sentence-transformers saves them."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    (folder / "1_Pooling").mkdir()
    modes = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    pooling = {"word_embedding_dimension": case.config["hidden_size"]}
    pooling |= {f"pooling_mode_{mode}": mode == modes[case.pooling] for mode in
                ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling, indent=2) + "\n")
    tensors = {}
    for (outputs, tanh), (weight, bias) in zip(case.dense, dense):
        name = f"{len(modules)}_Dense"
        (folder / name).mkdir()
        function = "torch.nn.modules.activation.Tanh" if tanh else "torch.nn.modules.linear.Identity"
        (folder / name / "config.json").write_text(json.dumps({
            "in_features": weight.shape[1], "out_features": outputs, "bias": tanh, "activation_function": function}) + "\n")
        own = {"linear.weight": weight} | ({"linear.bias": bias} if tanh else {})
        safetensors.torch.save_file(own, folder / name / "model.safetensors")
        tensors |= {f"{name}.{key}": value for key, value in own.items()}
        modules.append((name, "Dense"))
    if case.normalise:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
    (folder / "modules.json").write_text(json.dumps([
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)], indent=2) + "\n")
    return tensors


def make_case(case, out):
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    module = build(case)
    randomize(module, generator)
    dense = make_dense(case, generator)
    least = case.config["pad_token_id"] + 1
    inputs = []
    for length in LENGTHS:
        tokens = torch.randint(max(5, least), case.config["vocab_size"], (length,), generator=generator).tolist()
        inputs.append((tokens, length // 3 if case.pairs and length > 5 else 0))
    results = torch.stack([result(case, module, dense, *one) for one in inputs])
    for changes in case.matters:
        other = build(case, changes)
        other.load_state_dict(module.state_dict())
        changed = torch.stack([result(case, other, dense, *one) for one in inputs])
        if (changed - results).abs().max() / results.abs().max() < VISIBLE:
            raise SystemExit(f"{case.name}: {changes} changes nothing")
    folder = out / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        module.save_pretrained(scratch)
        config = json.loads((pathlib.Path(scratch) / "config.json").read_text())
        weights = safetensors.torch.load_file(pathlib.Path(scratch) / "model.safetensors")
    config["architectures"] = [case.named or case.architecture]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    wordpiece = case.architecture.startswith(("Bert", "Nomic"))
    if wordpiece:
        write_tokenizer(folder)
    if case.pooling:
        weights = weights | write_modules(case, folder, dense)
    if case.gguf:
        write_gguf(folder / "model.gguf", case, config, weights, VOCABULARY if wordpiece else None)
    safetensors.torch.save_file({
        "tokens": torch.tensor([t for tokens, _ in inputs for t in tokens], dtype=torch.int32),
        "lengths": torch.tensor([len(tokens) for tokens, _ in inputs], dtype=torch.int32),
        "second": torch.tensor([second for _, second in inputs], dtype=torch.int32),
        "results": results.contiguous(),
    }, folder / "expected.safetensors")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{case.name:28} {size / 1000:6.0f} kB  {sorted(weights)[:2]}", flush=True)
    return {"name": case.name, "architecture": case.architecture, "gguf_architecture": case.gguf or None,
            "covers": case.covers, "tolerance": TOLERANCE}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/data/encoders"))
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names of cases; all of them by default")
    arguments = parser.parse_args()
    assert len(VOCABULARY) <= 96
    VOCABULARY.extend(f"extra{i}" for i in range(96 - len(VOCABULARY)))
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "cases.json"
    index = {entry["name"]: entry for entry in json.loads(path.read_text())} if path.exists() else {}
    for case in CASES:
        if not arguments.cases or case.name in arguments.cases:
            index[case.name] = make_case(case, arguments.out)
    path.write_text(json.dumps([index[case.name] for case in CASES if case.name in index], indent=2) + "\n")


if __name__ == "__main__":
    main()
