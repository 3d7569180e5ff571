"""Models with random weights take and give text: their tokens are bytes."""

import pytest
from serving import Server


@pytest.mark.parametrize("model", ["synthetic:tiny", "synthetic:opt-125m:q4_0"])  # GGUF and tokenizer.json
def test_tokens_are_bytes(millrace, model):
    ids = millrace.json("tokenize", "-m", model, "Über  \n[7] <|end|>")["ids"]
    assert ids == list("Über  \n[7] ".encode()) + [256]


def test_ids_without_bytes_are_numbers_in_brackets(millrace):
    answer = millrace.json("run", "-m", "synthetic:tiny", "--tokens", "1,2,3", "-n", "40", "--ignore-eos", "--temperature", "1")
    expected = "".join(f"[{token}]" for token in answer["tokens"] if token >= 262)
    shown = "".join(f"[{part.split(']')[0]}]" for part in answer["text"].split("[")[1:] if "]" in part)
    assert len(answer["tokens"]) == 40 and expected and expected in shown


def test_a_synthetic_model_is_served():
    with Server("synthetic:tiny-experts:q4_k_m") as server:
        ask = {"messages": [{"role": "user", "content": "Grüße"}], "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        status, _, answer = server.post("/v1/chat/completions", ask)
        assert status == 200 and answer["usage"]["completion_tokens"] == 12
        assert answer["usage"]["prompt_tokens"] == len("Grüße".encode()) + 3  # user, end, assistant
        status, _, answer = server.post("/v1/completions", {"prompt": "abc", "max_tokens": 3, "ignore_eos": True})
        assert status == 200 and answer["usage"] == {**answer["usage"], "prompt_tokens": 3, "completion_tokens": 3}


def test_experts_beyond_the_memory_stay_in_the_file(millrace):
    model = "synthetic:tiny-experts:q4_0"
    whole = millrace.json("inspect", model, "--ctx", "64", "--exact")
    assert whole["mapped_experts"] is None
    limit = whole["memory"]["total"] - 1
    mapped = millrace.json("inspect", model, "--ctx", "64", "--exact", "--cpu-memory", limit)
    assert mapped["mapped_experts"]["bytes"] == 2 * 8 * 3 * 256 * 256 * 18 // 32
    assert mapped["memory"]["fits"] and mapped["memory"]["total"] < limit
    assert "--cpu-memory" in millrace.fails("inspect", model, "--cpu-memory", "much", code=2)
