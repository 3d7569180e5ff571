"""Answers in the harmony format of gpt-oss, whose messages begin with headers of special tokens."""

import json
import pathlib

import pytest

from serving import Server
from test_server_structured import CHAT, POINT, TOOLS, check_point
from tiny_model import write_tiny_model

TAGS = ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"]
TEMPLATE = (pathlib.Path(__file__).parent.parent / "data/templates/families/gpt_oss.jinja").read_text()
# The last token of the prompt is the "t" of "assistant".
FINAL = {"t": "<|channel|>", "<|channel|>": "final", "final": "<|message|>", "<|message|>": "H", "H": "i", "i": "<|return|>"}
THOUGHT = {**FINAL, "<|channel|>": "analysis", "analysis": "<|message|>"}


@pytest.fixture(scope="module")
def random_server(tmp_path_factory):
    model = write_tiny_model(tmp_path_factory.mktemp("harmony") / "random.gguf", template=TEMPLATE, extra=TAGS)
    with Server(model) as server:
        yield server


def answer(server, **request):
    status, _, body = server.post("/v1/chat/completions", {"messages": CHAT, "temperature": 1, "max_tokens": 400, **request})
    assert status == 200, body
    return body


@pytest.mark.parametrize("extra, most", [({"thinking_budget": 6}, 6), ({"reasoning_effort": "none"}, 0)])
@pytest.mark.parametrize("seed", range(2))
def test_a_form_holds_in_the_final_channel(random_server, extra, most, seed):
    form = {"type": "json_schema", "json_schema": {"name": "point", "schema": POINT, "strict": True}}
    body = answer(random_server, response_format=form, seed=seed, **extra)
    choice = body["choices"][0]
    assert choice["finish_reason"] == "stop"
    check_point(json.loads(choice["message"]["content"]))
    assert len(choice["message"].get("reasoning_content", "")) <= most
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] <= most + 1  # and the tag before it


@pytest.mark.parametrize("seed", range(2))
def test_forced_calls(random_server, seed):
    ask = {"tools": TOOLS, "tool_choice": "required", "thinking_budget": 4, "seed": seed}
    choice = answer(random_server, **ask)["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    call = choice["message"]["tool_calls"][0]["function"]
    if call["name"] == "move":
        check_point(json.loads(call["arguments"]))
    else:
        assert call["name"] == "wait" and 0 <= json.loads(call["arguments"])["s"] <= 9
    named = {"tool_choice": {"type": "function", "function": {"name": "move"}}}
    check_point(json.loads(answer(random_server, **{**ask, **named})["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]))
    status, _, body = random_server.post("/v1/responses", {"input": "Go.", "tool_choice": "required", "reasoning": {"effort": "none"},
                                                           "tools": [{"type": "function", **t["function"]} for t in TOOLS]})
    assert status == 200 and body["output"][-1]["type"] == "function_call", body


def test_earlier_calls_and_thoughts_are_rendered(random_server):
    call = {"id": "1", "type": "function", "function": {"name": "wait", "arguments": '{"s": 1}'}}
    said = {"role": "assistant", "content": "Hm.", "reasoning_content": "Wait.", "tool_calls": [call]}
    answer(random_server, messages=[*CHAT, said, {"role": "tool", "tool_call_id": "1", "content": "done"}], tools=TOOLS, max_tokens=2)
    for effort in ("minimal", "low", "medium", "high"):
        answer(random_server, reasoning_effort=effort, max_tokens=2)
    assert answer(random_server, reasoning_effort="none", max_tokens=5)["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


@pytest.mark.parametrize("chain, content, reasoning", [(FINAL, "Hi", None), (THOUGHT, None, "Hi")])
def test_headers_are_no_text(millrace, tmp_path, chain, content, reasoning):
    model = write_tiny_model(tmp_path / "chain.gguf", template=TEMPLATE, extra=[*TAGS, "final", "analysis"], chain=chain)
    with Server(model) as server:
        body = answer(server, temperature=0)
        message = body["choices"][0]["message"]
        assert (message["content"] or None, message.get("reasoning_content")) == (content, reasoning)
        assert body["choices"][0]["finish_reason"] == "stop"
        events = server.post("/v1/chat/completions", {"messages": CHAT, "temperature": 0, "stream": True})[2]
        assert "<|" not in str(events)
    run = ["run", "-m", model, "--temperature", "0", "Go."]
    plain = millrace.run(*run)
    assert plain.stdout.decode().strip() == (content or "")
    told = millrace.json(*run)
    assert (told["text"] or None, told.get("reasoning")) == (content, reasoning)
    chat = millrace.run("chat", "-m", model, "--temperature", "0", stdin=b"Go.\n").stdout.decode()
    assert chat.strip().endswith(content or "") and "<|" not in chat
