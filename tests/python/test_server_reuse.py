"""Conversations of several turns: what two turns share is not computed again, whatever state the model keeps."""

import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import GOLDENS
from serving import Server

pytestmark = pytest.mark.slow

# Keys and values, windows, latent rows, and each kind of recurrent state, alone and beside attention.
MODELS = ["gemma3", "deepseek_v2_lite", "mamba2", "lfm2", "granite_hybrid", "qwen3_next", "nemotron_h", "falcon_h1"]
# Tokens of the system prompt, of a question and of an answer.
CONVERSATIONS = [(8, 5, 12), (60, 20, 16), (120, 6, 8), (10, 60, 4), (31, 16, 33)]
CONTEXT = 480


def with_character_tokens(golden, folder):
    """A copy of a golden model in which each token is one character, so that a text has one way to become tokens."""
    shutil.copytree(GOLDENS / golden, folder)
    config = json.loads((folder / "config.json").read_text())
    size = config.get("vocab_size") or config["text_config"]["vocab_size"]
    letters = [chr(0x4E00 + i) for i in range(size)]
    model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": [], "unk_token": letters[0], "fuse_unk": False}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "decoder": {"type": "Fuse"}, "model": model}))
    return letters


def shared_length(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def converse(server, letters, lengths, seed):
    """Tokens that turns shared with the turn before, and how many of those came from the cache."""
    system, question, answer = lengths
    draw = random.Random(seed)
    words = lambda count: "".join(draw.choice(letters[5:]) for _ in range(count))
    prompt, before, shared, cached = words(system), None, 0, 0
    while True:
        prompt += words(draw.randint(question // 2 + 1, question * 3 // 2))
        if len(prompt) + answer > CONTEXT:
            return shared, cached
        status, _, body = server.post("/v1/completions", {"prompt": prompt, "max_tokens": answer, "ignore_eos": True, "temperature": 0})
        assert status == 200, body
        if before is not None:
            common = shared_length(before, prompt)
            shared += common
            cached += min(common, body["usage"]["prompt_tokens_details"]["cached_tokens"])
        before = prompt = prompt + body["choices"][0]["text"]


@pytest.mark.parametrize("golden", MODELS)
def test_turns_reuse_what_they_share(tmp_path, golden):
    letters = with_character_tokens(golden, tmp_path / "model")
    with Server(tmp_path / "model", "--ctx", CONTEXT, "--draft", "none") as server:
        reused = {f"{lengths} alone": converse(server, letters, lengths, seed) for seed, lengths in enumerate(CONVERSATIONS)}
        # Other requests in the same steps change the chunks of a prompt.
        with ThreadPoolExecutor(len(CONVERSATIONS)) as pool:
            runs = pool.map(lambda i: converse(server, letters, CONVERSATIONS[i], 100 + i), range(len(CONVERSATIONS)))
            reused |= {f"{lengths} at once": run for lengths, run in zip(CONVERSATIONS, runs)}
    for name, (shared, cached) in reused.items():
        assert shared > 500 and cached >= 0.9 * shared, (name, reused)
