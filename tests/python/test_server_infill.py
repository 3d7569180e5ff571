"""Filling in the middle, and answers that continue a message."""

import pytest

from serving import Server
from tiny_model import TEMPLATE, write_tiny_model

FIM = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    with Server(write_tiny_model(tmp_path_factory.mktemp("fim") / "tiny.gguf", extra=FIM)) as server:
        yield server


def test_suffix(filler):
    spelled = filler.post("/v1/completions", {"prompt": "<|fim_prefix|>ab<|fim_suffix|>yz<|fim_middle|>", "temperature": 0})[2]
    filled = filler.post("/v1/completions", {"prompt": "ab", "suffix": "yz", "temperature": 0})[2]
    assert filled["choices"][0]["text"] == spelled["choices"][0]["text"]
    assert filled["usage"]["prompt_tokens"] == spelled["usage"]["prompt_tokens"] == 7
    hostile = filler.post("/v1/completions", {"prompt": "ab<|fim_middle|>", "suffix": "yz", "temperature": 0})[2]
    assert hostile["usage"]["prompt_tokens"] == 7 + len("<|fim_middle|>")  # text, no token
    status, _, body = filler.post("/v1/completions", {"prompt": [40], "suffix": "yz"})
    assert status == 400 and body["error"]["param"] == "prompt"
    status, _, body = filler.post("/v1/completions", {"prompt": "a", "suffix": "yz", "echo": True})
    assert status == 400 and body["error"]["param"] == "echo"


def test_infill(filler, server):
    filled = filler.post("/v1/completions", {"prompt": "ab", "suffix": "yz", "temperature": 0, "max_tokens": 12})[2]
    ask = {"input_prefix": "a", "prompt": "b", "input_suffix": "yz", "temperature": 0, "n_predict": 12, "cache_prompt": True}
    status, _, body = filler.post("/infill", ask)
    assert status == 200 and body["content"] == filled["choices"][0]["text"] and body["stop"] and body["tokens_evaluated"] == 7
    with_files = filler.post("/infill", {**ask, "input_extra": [{"filename": "a.py", "text": "x = 1"}]})[2]
    assert with_files["tokens_evaluated"] > 7
    streamed = filler.post("/infill", {**ask, "stream": True})[2].decode()
    assert streamed.count('"stop":true') == 1
    status, _, body = server.post("/infill", ask)  # a model without these tokens
    assert status == 400 and body["error"]["param"] == "input_suffix" and "middle" in body["error"]["message"]


def test_continue_final_message(server):
    """The text of the message also occurs in the markup behind it."""
    for said in ("im", "Hello, ", "x\n"):
        ask = {"temperature": 0, "max_tokens": 8, "continue_final_message": True, "add_generation_prompt": False,
               "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": said}]}
        status, _, body = server.post("/v1/chat/completions", ask)
        raw = server.post("/v1/completions", {"temperature": 0, "max_tokens": 8,
                                              "prompt": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" + said})[2]
        assert status == 200 and body["choices"][0]["message"]["content"] == raw["choices"][0]["text"]
        assert body["usage"]["prompt_tokens"] == raw["usage"]["prompt_tokens"]


def test_responses_reasoning(tmp_path):
    """Reasoning as a summary, and as content that the client sends back."""
    chain = {"\n": "a", "a": "b", "b": "</think>", "</think>": "c", "c": "<|im_end|>"}
    template = TEMPLATE.replace("assistant\n", "assistant\n<think>\n").replace(
        "{{ m['content'] }}", "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m['content'] }}") + "{# </think> #}"
    with Server(write_tiny_model(tmp_path / "thinks.gguf", template=template, chain=chain, extra=["</think>"])) as server:
        ask = {"input": "Hi", "temperature": 0}
        plain = server.post("/v1/responses", ask)[2]["output"]
        assert [item["type"] for item in plain] == ["reasoning", "message"]
        assert plain[0]["content"][0]["text"] == "ab" and plain[0]["summary"] == [] and "encrypted_content" not in plain[0]
        told = server.post("/v1/responses", {**ask, "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]})[2]["output"]
        assert told[0]["summary"] == [{"type": "summary_text", "text": "ab"}] and told[0]["encrypted_content"]
        events = server.post("/v1/responses", {**ask, "reasoning": {"summary": "auto"}, "stream": True})[2].decode()
        assert "event: response.reasoning_summary_text.delta" in events and "event: response.reasoning_summary_part.done" in events
        again = [{"role": "user", "content": "Hi"}, *told, {"role": "user", "content": "And?"}]
        only_kept = [{**item, "summary": []} if item.get("type") == "reasoning" else item for item in again]
        without = [item for item in again if item.get("type") != "reasoning"]
        counts = [server.post("/v1/responses", {**ask, "input": history})[2]["usage"]["input_tokens"] for history in (again, only_kept, without)]
        assert counts[0] == counts[1] == counts[2] + len("(ab)")
