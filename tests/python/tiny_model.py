"""Writes a tiny random Llama with an ASCII vocabulary and a chat template, for tests of the server."""

import gguf
import numpy as np

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
PIECES = SPECIAL + ["\n"] + [chr(c) if c != 32 else "▁" for c in range(32, 127)]
HIDDEN, HEADS, KV_HEADS, HEAD, FEED, LAYERS = 64, 4, 2, 16, 96, 2


def token_id(character):
    return PIECES.index(character)


def write_tiny_model(path, context=2048, template=TEMPLATE, seed=7, head=HEAD, kind=gguf.GGMLQuantizationType.F32, factors=None, broken=None, add_bos=False, extra=(), chain=None):
    """`factors`: multipliers of the matrices whose name contains the key; `kind`: the number format of all matrices;
    `broken`: a token, and the value of its whole embedding; `extra`: more tokens, special ones in <| |>; `chain`: the
    greedy answer, as a token for each token before it."""
    rng = np.random.default_rng(seed)
    pieces = PIECES + list(extra)
    vocab = len(pieces)
    if chain:
        factors = {"attn_output": 0, "ffn_down": 0}  # only the last token matters
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("tiny")
    w.add_context_length(context)
    w.add_embedding_length(HIDDEN)
    w.add_feed_forward_length(FEED)
    w.add_block_count(LAYERS)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(head)
    w.add_value_length(head)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_rope_dimension_count(head)
    w.add_vocab_size(vocab)
    w.add_tokenizer_model("llama")
    w.add_token_list(pieces)
    w.add_token_scores([0.0] * vocab)
    w.add_token_types([2, 3, 3, 3, 3] + [3 if p.startswith("<|") else 1 for p in pieces[len(SPECIAL):]])
    w.add_unk_token_id(0)
    w.add_bos_token_id(1)
    w.add_eos_token_id(4)
    w.add_add_bos_token(add_bos)
    w.add_add_space_prefix(False)
    if template:
        w.add_chat_template(template)

    embedding = []

    def matrix(name, rows, columns, silent=0):
        values = (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)
        values[:silent] = 0
        for part, factor in (factors or {}).items():
            values *= np.float32(factor if part in name else 1)
        if broken and name == "token_embd.weight":
            values[broken[0]] = broken[1]
        if name == "token_embd.weight":
            embedding.append(values)
        if chain and name == "output.weight":
            values[:] = 0
            for before, after in chain.items():
                values[pieces.index(after)] = embedding[0][pieces.index(before)]
        w.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def ones(name):
        w.add_tensor(name, np.ones(HIDDEN, np.float32))

    matrix("token_embd.weight", vocab, HIDDEN)
    for i in range(LAYERS):
        ones(f"blk.{i}.attn_norm.weight")
        matrix(f"blk.{i}.attn_q.weight", HEADS * head, HIDDEN)
        matrix(f"blk.{i}.attn_k.weight", KV_HEADS * head, HIDDEN)
        matrix(f"blk.{i}.attn_v.weight", KV_HEADS * head, HIDDEN)
        matrix(f"blk.{i}.attn_output.weight", HIDDEN, HEADS * head)
        ones(f"blk.{i}.ffn_norm.weight")
        matrix(f"blk.{i}.ffn_gate.weight", FEED, HIDDEN)
        matrix(f"blk.{i}.ffn_up.weight", FEED, HIDDEN)
        matrix(f"blk.{i}.ffn_down.weight", HIDDEN, FEED)
    ones("output_norm.weight")
    matrix("output.weight", vocab, HIDDEN, silent=len(SPECIAL))  # greedy answers contain no special tokens
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path
