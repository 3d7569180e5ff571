#!/usr/bin/env python3
"""Writes tests/data/tokenizers/: small tokenizers of every kind, and the results of Hugging Face tokenizers on a mixed corpus.
Needs tokenizers (0.23) and sentencepiece from PyPI. The same versions write the same files.
"""
import base64
import io
import json
import pathlib
import tempfile
import unicodedata

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tokenizer_corpus as corpus

OUTPUT = pathlib.Path(__file__).parent.parent / "tests/data/tokenizers"
TEXTS = corpus.fixed_texts()[:-1] + corpus.random_texts(seed=7, count=40)
STRINGS = [corpus.as_hugging_face_sees_it(t) for t in TEXTS]
SHORT = [s for s in STRINGS if len(s) < 130]
TRAINING = [s for s in corpus.SENTENCES if len(s) > 20]


def write(name, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    (OUTPUT / name).write_text(text.replace('},{"name"', '},\n{"name"') + "\n")
    print(f"{name}: {len(text) // 1024} KiB")


def parts(tokenizer):
    return json.loads(tokenizer.to_str())


def vectors(tokenizer, texts=STRINGS):
    """A tokenizer's results for the texts. Only the second list adds special tokens; the third is its decoding."""
    plain = [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
    return {
        "ids": plain,
        "framed": [tokenizer.encode(t).ids for t in texts[:8]],
        "decoded": [tokenizer.decode(ids) for ids in plain],
        "decoded_special": [tokenizer.decode(tokenizer.encode(t).ids, skip_special_tokens=False) for t in texts[:8]],
        # Every other token: sequences that no text encodes to, with broken characters.
        "decoded_odd": [tokenizer.decode(ids[1::2]) for ids in plain],
    }


def complete(name, tokenizer, **more):
    write(name, {"tokenizer": parts(tokenizer), **more, **vectors(tokenizer)})


# Byte-level BPE. Trained without word splitting, so that tokens cross every boundary of a pre-tokenizer.
def byte_level_bpe():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False,
                                  special_tokens=["<|endoftext|>", "<s>", "</s>"])
    spaces = ["  ", "   ", "    ", "\n\n", " \n", "\n\n\n", "12", "123", " 1", "'s", "'S", "'ll", "'re", "!!", "...", "漢字", "ab", "AB", "aB"]
    tokenizer.train_from_iterator(TRAINING + spaces * 3, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("<|user|>", normalized=False)])
    return tokenizer


CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS_GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
               rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{SPACES}")
LLAMA3 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{SPACES}"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*{SPACES}"
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{SPACES}")
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*""" + SPACES)
LATIN_GREEK_CYRILLIC = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f"
    "\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57"
    "\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787"
    "\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
DIGITS = pre_tokenizers.Digits(individual_digits=True)
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"

# By GGUF's name: the pre-tokenizer of the models' tokenizer.json, its normalizer, and ignore_merges.
GGUF_PRE_TOKENIZERS = {
    "gpt-2": (WORDS, None, False),
    "mpt": (WORDS, normalizers.NFC(), False),
    "llama-bpe": (sequence(split(LLAMA3), BYTES), None, True),
    "chatglm-bpe": (sequence(split(LLAMA3), BYTES), None, False),
    "glm4": (sequence(split(LLAMA3), BYTES), None, False),
    "qwen2": (sequence(split(QWEN2), BYTES), normalizers.NFC(), False),
    "qwen35": (sequence(split(QWEN35), BYTES), None, False),
    "deepseek-llm": (sequence(split("[\r\n]"), split(rf"\s?[{LATIN_GREEK_CYRILLIC}]+"),
                              split(r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split(r"\s+$"), split(CJK), DIGITS, BYTES), None, False),
    "deepseek-coder": (sequence(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK), DIGITS, BYTES), None, False),
    "deepseek-v3": (sequence(split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(DEEPSEEK3), BYTES), None, False),
    "falcon": (sequence(pre_tokenizers.Punctuation("contiguous"), WORDS, pre_tokenizers.Digits(False), split("[0-9][0-9][0-9]")), None, False),
    "starcoder": (sequence(DIGITS, WORDS), None, False),
    "refact": (sequence(DIGITS, WORDS), None, False),
    "smollm": (sequence(DIGITS, WORDS), None, False),
    "command-r": (sequence(DIGITS, WORDS), normalizers.NFC(), False),
    "tekken": (sequence(split(TEKKEN), BYTES), None, True),
    "gpt-4o": (sequence(split(WORDS_GPT4O), BYTES), None, False),
}


def write_byte_level():
    base = byte_level_bpe()
    write("byte_level_bpe.json", {"tokenizer": parts(base)})
    variants = []
    for name, (pre_tokenizer, normalizer, ignore_merges) in GGUF_PRE_TOKENIZERS.items():
        tokenizer = Tokenizer.from_str(base.to_str())
        tokenizer.pre_tokenizer = pre_tokenizer
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        tokenizer.model.ignore_merges = ignore_merges
        described = parts(tokenizer)
        variants.append({"name": name, "pre_tokenizer": described["pre_tokenizer"], "normalizer": described["normalizer"],
                         "ignore_merges": ignore_merges, "ids": [tokenizer.encode(t).ids for t in STRINGS]})
    write("byte_level_variants.json", variants)


def train_sentencepiece(**options):
    model = io.BytesIO()
    sentences = iter(TRAINING * 3)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=sentences, model_writer=model, character_coverage=0.98, minloglevel=2,
                                             hard_vocab_limit=False, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()), model.getvalue()


def gguf_of_sentencepiece(model, kind, **more):
    ids = range(model.vocab_size())
    types = [2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1 for i in ids]
    return {"model": kind, "tokens": [model.id_to_piece(i) for i in ids], "token_type": types, "scores": [model.get_score(i) for i in ids],
            "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, **more}


def merges_of_scores(gguf):
    """All pairs that form each token, best scores first: how transformers converts SentencePiece."""
    usable = {t: s for t, s, kind in zip(gguf["tokens"], gguf["scores"], gguf["token_type"]) if kind == 1}
    index = {t: i for i, t in enumerate(gguf["tokens"])}
    merges = [(t[:i], t[i:], s) for t, s in usable.items() for i in range(1, len(t)) if t[:i] in usable and t[i:] in usable]
    merges.sort(key=lambda m: (-m[2], index[m[0]], index[m[1]]))
    return [m[:2] for m in merges]


SPECIAL = [AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")]
BOS = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])


def write_sentencepiece_bpe():
    model, _ = train_sentencepiece(model_type="bpe", vocab_size=1300, byte_fallback=True, normalization_rule_name="identity",
                                   remove_extra_whitespaces=False, allow_whitespace_only_pieces=True)
    gguf = gguf_of_sentencepiece(model, "llama")
    vocab = {t: i for i, t in enumerate(gguf["tokens"])}
    merges = merges_of_scores(gguf)

    def bpe():
        return Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))

    llama2 = bpe()  # as transformers converted it at first
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    llama2.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    llama2.add_special_tokens(SPECIAL)
    llama2.post_processor = BOS
    complete("sentencepiece_bpe.json", llama2, gguf=gguf)

    metaspace = bpe()  # as it does now
    metaspace.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    metaspace.decoder = llama2.decoder
    metaspace.add_special_tokens(SPECIAL)
    metaspace.add_tokens([AddedToken("<|end|>", rstrip=True, normalized=False), AddedToken("(", lstrip=True, normalized=True)])
    complete("metaspace_bpe.json", metaspace)

    gemma = bpe()
    gemma.normalizer = normalizers.Replace(" ", "▁")
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    gemma.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    gemma.add_special_tokens(SPECIAL)
    gemma.post_processor = BOS
    complete("gemma_bpe.json", gemma, gguf={**gguf, "model": "gemma4", "merges": [" ".join(m) for m in merges]})


CHARSMAP_RULES = [("\t", " "), ("\n", " "), ("\r", " "), ("\u00a0", " "), ("\u3000", " "), ("\u200b", ""), ("\ufeff", ""), ("\x1b", ""),
                  ("e\u0301", "é"), ("E\u0301", "É"), ("n\u0303", "ñ"), ("\u212b", "Å"), ("ﬁ", "fi"), ("ﬂ", "fl"), ("½", "1/2"), ("²", "2"), ("™", "TM"),
                  ("…", "..."), ("～", "~"), ("ｆ", "f"), ("ｕ", "u"), ("ｌ", "l"), ("Ａ", "A"), ("１", "1"), ("\u1100\u1161", "가"), ("🇩🇪", "DE"), ("ß", "ss")]


def charsmap_file(folder):
    path = pathlib.Path(folder) / "rules.tsv"
    hexadecimal = lambda text: " ".join(f"{ord(c):04X}" for c in text)
    path.write_text("".join(f"{hexadecimal(a)}\t{hexadecimal(b)}\n" for a, b in CHARSMAP_RULES))
    return str(path)


def charsmap_of(proto):
    """normalizer_spec.precompiled_charsmap of a serialized model, found by walking the protocol buffer."""
    def fields(data):
        at = 0
        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            key = varint()
            if key & 7 == 2:
                length = varint()
                yield key >> 3, data[at:at + length]
                at += length
            elif key & 7 == 0:
                varint()
            else:
                at += {1: 8, 5: 4}[key & 7]
    normalizer = next(value for number, value in fields(proto) if number == 3)
    return next(value for number, value in fields(normalizer) if number == 2)


def write_unigram():
    with tempfile.TemporaryDirectory() as folder:
        model, proto = train_sentencepiece(model_type="unigram", vocab_size=1100, normalization_rule_tsv=charsmap_file(folder))
    charsmap = base64.b64encode(charsmap_of(proto)).decode()
    gguf = gguf_of_sentencepiece(model, "t5", precompiled_charsmap=charsmap, add_space_prefix=True, remove_extra_whitespaces=True, add_bos_token=False)
    tokenizer = Tokenizer(models.Unigram(list(zip(gguf["tokens"], gguf["scores"])), unk_id=0, byte_fallback=False))
    described = parts(tokenizer)
    described["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": charsmap}]}
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.pre_tokenizer = sequence(pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Metaspace("▁", prepend_scheme="always"))
    tokenizer.decoder = decoders.Metaspace("▁", prepend_scheme="always")
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    complete("unigram.json", tokenizer, gguf=gguf)

    model, _ = train_sentencepiece(model_type="unigram", vocab_size=1100, byte_fallback=True, normalization_rule_name="identity")
    gguf = gguf_of_sentencepiece(model, "t5")
    tokenizer = Tokenizer(models.Unigram(list(zip(gguf["tokens"], gguf["scores"])), unk_id=0, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", prepend_scheme="first")])
    tokenizer.add_special_tokens(SPECIAL)
    complete("unigram_bytes.json", tokenizer)


def write_word_models():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    bert = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    bert.normalizer = normalizers.BertNormalizer()
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert.decoder = decoders.WordPiece()
    bert.train_from_iterator(TRAINING, trainers.WordPieceTrainer(vocab_size=800, special_tokens=special, show_progress=False))
    bert.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    complete("wordpiece.json", bert)

    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator(TRAINING, trainers.WordLevelTrainer(vocab_size=300, special_tokens=special, show_progress=False))
    words.add_tokens([AddedToken("can", single_word=True), AddedToken("Case", single_word=True)])
    complete("wordlevel.json", words)

    roberta = byte_level_bpe()
    roberta.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    roberta.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    roberta.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True), AddedToken("<unk>", rstrip=True, lstrip=True, single_word=True)])
    roberta.add_tokens([AddedToken("\n", rstrip=True, normalized=False), AddedToken("dog"), AddedToken("do")])
    complete("roberta.json", roberta)

    clip = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=False))
    clip.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    clip.pre_tokenizer = pre_tokenizers.Split(Regex(r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""), "removed", invert=True)
    clip.decoder = decoders.BPEDecoder("</w>")
    clip.train_from_iterator(TRAINING[:4], trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", "<s>"], end_of_word_suffix="</w>", show_progress=False))
    complete("word_suffix_bpe.json", clip)

    prefix = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=True))
    prefix.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    prefix.train_from_iterator(TRAINING[:4], trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], continuing_subword_prefix="##", show_progress=False))
    complete("subword_prefix_bpe.json", prefix)


# Single components.
def write_normalizers():
    cases = []
    listed = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents(),
              normalizers.Strip(), normalizers.Strip(left=False), normalizers.Strip(right=False), normalizers.Nmt(), normalizers.ByteLevel(),
              normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace(Regex("^ ?a"), "<>"),
              normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]), normalizers.BertNormalizer(),
              normalizers.BertNormalizer(lowercase=False), normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False)]
    for normalizer in listed:
        tokenizer = Tokenizer(models.WordLevel())
        tokenizer.normalizer = normalizer
        described = parts(tokenizer)["normalizer"]
        cases.append({"name": json.dumps(described), "normalizer": described, "expected": [normalizer.normalize_str(s) for s in SHORT]})
    write("normalizers.json", cases)


def write_pre_tokenizers():
    behaviors = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    listed = [pre_tokenizers.Split(Regex(r"[\s\d]"), b, invert=i) for b in behaviors for i in (False, True)]
    listed += [pre_tokenizers.Split(" ", b) for b in behaviors] + [pre_tokenizers.Punctuation(b) for b in behaviors]
    listed += [pre_tokenizers.Digits(True), pre_tokenizers.Digits(False), pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(),
               pre_tokenizers.BertPreTokenizer(), pre_tokenizers.CharDelimiterSplit("a"), pre_tokenizers.UnicodeScripts(),
               pre_tokenizers.ByteLevel(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    listed += [pre_tokenizers.Metaspace("▁", prepend_scheme=p, split=s) for p in ("first", "never", "always") for s in (True, False)]
    listed += [sequence(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", prepend_scheme="first"))]
    listed += [pre_tokenizers.FixedLength(3)] if hasattr(pre_tokenizers, "FixedLength") else []
    cases = []
    for pre_tokenizer in listed:
        texts = SHORT[::2]
        if isinstance(pre_tokenizer, pre_tokenizers.UnicodeScripts):  # its script table is from an old version of Unicode
            texts = [s for s in texts if all(unicodedata.ucd_3_2_0.category(c) != "Cn" for c in s)]
        tokenizer = Tokenizer(models.WordLevel())
        tokenizer.pre_tokenizer = pre_tokenizer
        described = parts(tokenizer)["pre_tokenizer"]
        cases.append({"name": json.dumps(described), "pre_tokenizer": described, "texts": texts if not cases or len(texts) < len(SHORT[::2]) else None,
                      "expected": [[piece for piece, _ in pre_tokenizer.pre_tokenize_str(s)] for s in texts]})
    write("pre_tokenizers.json", cases)


def write_decoders():
    tokens = [["▁Hello", ",", "▁wor", "ld", "<0xE2>", "<0x82>", "<0xAC>", "!"], ["<0xE2>", "<0x82>", "a", "<0x41>", "<0xFF>"], ["<0xE2>", "<0x82>"], [""], ["▁"],
              ["▁▁a", "▁", "b▁c"], ["Hello", "##wor", "ld", ",", "do", "not", "'", "s", "n't"], ["he", "llo</w>", "wor", "ld</w>"], ["h", "h", "<pad>", "h", "|", "|", "e"],
              ["Ġhello", "Ċ", "âĤ", "¬", "âĤ", "x", "ð", "Ł", "ĺ", "Ģ", "é", "<|im_end|>", "  "], ["é"], ["ĠĠ", "æ", "¼", "¢", "Ã"], ["a", "b", "c"], [" a ", "  b  ", "c "]]
    listed = [decoders.ByteLevel(), decoders.ByteFallback(), decoders.Fuse(), decoders.Metaspace("▁", prepend_scheme="always"),
              decoders.Metaspace("▁", prepend_scheme="never"), decoders.WordPiece(), decoders.WordPiece("##", cleanup=False), decoders.BPEDecoder(), decoders.CTC(),
              decoders.Replace("▁", " "), decoders.Replace(Regex("[a-c]+"), "<>"), decoders.Strip(" ", 1, 0), decoders.Strip("a", 2, 0),
              decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
              decoders.Sequence([decoders.Fuse(), decoders.Replace(Regex("l+"), "L")]), decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁")])]
    cases = []
    for decoder in listed:
        tokenizer = Tokenizer(models.WordLevel())
        tokenizer.decoder = decoder
        described = parts(tokenizer)["decoder"]
        cases.append({"name": json.dumps(described), "decoder": described, "tokens": tokens, "expected": [decoder.decode(t) for t in tokens]})
    write("decoders.json", cases)


REGEXES = [
    r"\s+$", r"^\S+|\S+$", r"\Aa|b\z|\n\Z", r".+", r"(?m).+", r"(?i:'s|k|é|straße)", r"\h+", r"[a-z&&[^aeiou]]+", r"[[:alpha:]]+", r"[[:punct:]]+", r"\p{Punct}+",
    r"\p{Han}+|\p{hiragana}+|\p{Katakana}+", r"\p{^L}+", r"\w+", r"\W+", r"\d+", r"\s+", r"\R", r"a{2}|b{1,2}|c{,2}d", r"[a-z]{1,3}+", r"[a-z]++\d?", r"(?>a|ab)c?",
    r"(?<=a)b|(?<!\s)\d|(?<=ab|c)d", r"\bt\w+|\w+\b", r"\x41|\u0042|\x{6f22}", r"[^]a]+", r"[\w-]+", r"(?x) a \w # letter", r"(?i)a(?-i)B|c", r"a.*?e|\d+?",
    r"(?:\d{3})+(?!\d)", r"\d{1,3}(?=(?:\d{3})*\b)", r"(?=(\d{3})+(?!\d))", r"[\p{Lu}&&\p{Latin}]\p{Ll}*", r"\p{Alphabetic}+", r"\p{Uppercase}+|\p{Lowercase}+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+", r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}", "", r"x*", r"(?:a|b|)", QWEN35, WORDS_GPT4O, DEEPSEEK3,
]


def write_regexes():
    texts = SHORT[1::3]
    cases = []
    for pattern in REGEXES:
        matches = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
        cases.append({"name": pattern, "texts": texts if not cases else None, "matches": [[list(at) for _, at in matches.pre_tokenize_str(s)] for s in texts]})
    write("regexes.json", cases)


def main():
    OUTPUT.mkdir(parents=True, exist_ok=True)
    write("texts.json", {"hex": [t.hex() for t in TEXTS], "short": SHORT})
    write_byte_level()
    write_sentencepiece_bpe()
    write_unigram()
    write_word_models()
    write_normalizers()
    write_pre_tokenizers()
    write_decoders()
    write_regexes()


if __name__ == "__main__":
    main()
