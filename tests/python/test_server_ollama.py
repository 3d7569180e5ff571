"""Ollama's protocol through its own client. The model is random, so only the grammar can make calls valid."""

import json
import urllib.error
import urllib.request

import ollama
import pytest

from serving import Server
from tiny_model import TEMPLATE, write_tiny_model

MESSAGES = [{"role": "user", "content": "Say hello."}]
OPTIONS = {"num_predict": 12, "temperature": 0}
POINT = {"type": "object", "properties": {"s": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["s"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "wait", "description": "Waits.", "parameters": POINT}}]


@pytest.fixture(scope="module")
def client(server):
    return ollama.Client(host=server.url)


def test_chat(client, server):
    made = client.chat(model="tiny", messages=MESSAGES, options=OPTIONS)
    chat = server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 12, "temperature": 0})[2]
    assert made.message.content == chat["choices"][0]["message"]["content"]
    assert made.done and made.done_reason == "length" and made.eval_count == 12
    assert made.prompt_eval_count == chat["usage"]["prompt_tokens"] and made.total_duration > 0
    pieces = list(client.chat(model="tiny:latest", messages=MESSAGES, options=OPTIONS, stream=True))
    assert "".join(p.message.content for p in pieces) == made.message.content
    assert [p.done for p in pieces].count(True) == 1 and pieces[-1].done_reason == "length"


def test_generate(client, server):
    made = client.generate(model="tiny", prompt="Say hello.", options=OPTIONS)
    assert made.response == client.chat(model="tiny", messages=MESSAGES, options=OPTIONS).message.content
    raw = client.generate(model="tiny", prompt="Say hello.", raw=True, options=OPTIONS)
    plain = server.post("/v1/completions", {"prompt": "Say hello.", "max_tokens": 12, "temperature": 0})[2]
    assert raw.response == plain["choices"][0]["text"]
    assert "".join(p.response for p in client.generate(model="tiny", prompt="Say hello.", options=OPTIONS, stream=True)) == made.response
    system = client.generate(model="tiny", prompt="Say hello.", system="Be brief.", options=OPTIONS)
    assert system.prompt_eval_count > made.prompt_eval_count
    assert client.generate(model="tiny").done_reason == "load"


def test_the_last_line_of_a_stream_has_no_text(server):
    for path, ask in (("/api/generate", {"prompt": "Say hello."}), ("/api/chat", {"messages": MESSAGES})):
        lines = [json.loads(line) for line in server.post(path, {**ask, "options": OPTIONS})[2].splitlines()]
        text = [line.get("response", line.get("message", {}).get("content")) for line in lines]
        assert text[-1] == "" and lines[-1]["done"] and not any(line["done"] for line in lines[:-1])
        assert "".join(text) == server.post(path, {**ask, "options": OPTIONS, "stream": False})[2].get(
            "response", "") or path == "/api/chat"


def test_an_empty_input_has_no_embedding(client, server):
    for body in ({"input": ""}, {"input": []}, {}):
        status, _, made = server.post("/api/embed", {"model": "tiny", **body})
        assert status == 200 and made["embeddings"] == []
    assert server.post("/api/embeddings", {"model": "tiny", "prompt": ""})[2] == {"embedding": []}


def test_format(client):
    made = client.chat(model="tiny", messages=MESSAGES, format=POINT, options={"num_predict": 100, "temperature": 1, "seed": 3})
    assert 0 <= json.loads(made.message.content)["s"] <= 9
    made = client.generate(model="tiny", prompt="Go.", format="json", options={"num_predict": 30})
    assert made.response.lstrip().startswith("{")


def test_tools(server, tmp_path):
    history = MESSAGES + [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "wait", "arguments": {"s": 5}}}]},
                          {"role": "tool", "tool_name": "wait", "content": "done"}]
    made = server.post("/api/chat", {"messages": history, "tools": TOOLS, "options": OPTIONS, "stream": False})[2]
    call = {"id": "c", "type": "function", "function": {"name": "wait", "arguments": '{"s":5}'}}
    seen = server.post("/tokenize", {"tools": TOOLS, "messages": [
        MESSAGES[0], {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "name": "wait", "content": "done"}]})[2]
    assert made["prompt_eval_count"] == seen["count"]  # the client would leave bounds out of the tools
    said = '<tool_call>{"name":"wait","arguments":{"s":5}}</tool_call>'  # one token, the greedy answer
    model = write_tiny_model(tmp_path / "calls.gguf", chain={"\n": said, said: "<|im_end|>"}, extra=[said])
    with Server(model) as calling:
        caller = ollama.Client(host=calling.url)
        made = caller.chat(model="calls", messages=MESSAGES, tools=TOOLS, options=OPTIONS)
        assert [(c.function.name, c.function.arguments) for c in made.message.tool_calls] == [("wait", {"s": 5})]
        assert made.done_reason == "stop" and not made.message.content
        pieces = list(caller.chat(model="calls", messages=MESSAGES, tools=TOOLS, options=OPTIONS, stream=True))
        assert sum(len(p.message.tool_calls or []) for p in pieces) == 1


def test_models(client, tiny_chat):
    listed = client.list().models
    assert [m.model for m in listed] == ["tiny"] and listed[0].details.family == "llama" and listed[0].details.format == "gguf"
    assert 0 < listed[0].size <= tiny_chat.stat().st_size
    shown = client.show("tiny")
    assert "completion" in shown.capabilities and shown.template == TEMPLATE and shown.modelinfo["llama.embedding_length"] == 64
    running = client.ps().models
    assert [m.model for m in running] == ["tiny"]


def test_version(server):
    assert server.get("/api/version")[2]["version"]


def test_embed(client, server):
    made = client.embed(model="tiny", input=["a", "b"])
    reference = server.post("/v1/embeddings", {"input": ["a", "b"]})[2]
    assert [list(v) for v in made.embeddings] == [d["embedding"] for d in reference["data"]]
    assert list(client.embeddings(model="tiny", prompt="a").embedding) == reference["data"][0]["embedding"]


def test_errors(client, server):
    with pytest.raises(ollama.ResponseError, match="model 'other' not found") as refused:
        client.chat(model="other", messages=MESSAGES)
    assert refused.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="does not support thinking"):
        client.chat(model="tiny", messages=MESSAGES, think=True)
    with pytest.raises(ollama.ResponseError, match="millrace models"):
        client.pull("no-such-model")
    for body in ({"messages": "x"}, {"messages": MESSAGES, "options": {"mirostat": 1}}, {"messages": MESSAGES, "nonsense": 1}):
        status, _, answer = server.post("/api/chat", body)
        assert status == 400 and isinstance(answer["error"], str), answer


def test_curl_needs_no_content_type(server):
    """Ollama's documentation calls `curl -d`, which says that the body is a form."""
    ask = urllib.request.Request(server.url + "/api/generate", data=json.dumps({"prompt": "x", "stream": False, "options": OPTIONS}).encode(),
                                 headers={"Content-Type": "application/x-www-form-urlencoded"})
    with urllib.request.urlopen(ask, timeout=60) as answer:
        assert json.loads(answer.read())["eval_count"] == 12
    ask.add_header("Origin", "http://elsewhere.example")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(ask, timeout=60)
    assert refused.value.code == 415


def test_thinking(tmp_path):
    template = TEMPLATE.replace("assistant\n", "assistant\n{% if enable_thinking is not false %}<think>\n{% endif %}") + "{# </think> #}"
    chain = {"\n": "a", "a": "b", "b": "</think>", "</think>": "c", "c": "<|im_end|>"}
    with Server(write_tiny_model(tmp_path / "thinks.gguf", template=template, chain=chain, extra=["</think>"])) as server:
        client = ollama.Client(host=server.url)
        made = client.chat(model="thinks", messages=MESSAGES, options=OPTIONS, think=True)
        assert (made.message.thinking, made.message.content, made.done_reason) == ("ab", "c", "stop")
        silent = client.chat(model="thinks", messages=MESSAGES, options={**OPTIONS, "num_predict": 1}, think=False)
        assert not silent.message.thinking
