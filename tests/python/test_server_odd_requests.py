"""Requests that no client should send: each gets a status of its own and one clear line, and the server goes on."""

import json
import socket

import pytest

HI = [{"role": "user", "content": "Hi"}]
CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x"}}


def chat(**more):
    return {"messages": HI, "max_tokens": 2, **more}


def form(schema):
    return chat(response_format={**SCHEMA, "json_schema": {"name": "x", "schema": schema}})


REFUSED = [
    (CHAT, b"", 400, "the body is empty"),
    (CHAT, b"\xef\xbb\xbf", 400, "not valid JSON"),
    (CHAT, json.dumps(chat()).encode("utf-16-le"), 400, "not valid JSON"),
    (CHAT, [], 400, "must be of type object"),
    (CHAT, {"messages": [None]}, 400, "messages[0]"),
    (CHAT, {"messages": [{"role": "user", "content": []}]}, 400, "must have at least 1 item"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400, "'messages[0].content[0].text' is required"),
    (CHAT, {"messages": HI * 5000}, 400, "maximum context length"),
    (CHAT, chat(max_tokens=10**30), 400, "at most 1073741824"),
    (CHAT, chat(max_tokens=True), 400, "boolean"),
    (CHAT, chat(max_token=2), 400, "did you mean max_tokens?"),
    (CHAT, chat(seed=2**63), 400, "at most 9223372036854775807"),
    (CHAT, chat(temperature=1e308), 400, "'temperature' must be at most 2"),
    (CHAT, chat(logit_bias={" 1": 1}), 400, "names the token ' 1'"),
    (CHAT, chat(logit_bias={"99999999999999999999": 1}), 400, "logit_bias"),
    (CHAT, chat(stop=["a", 1]), 400, "'stop[1]' must be of type string"),
    (CHAT, chat(top_logprobs=2), 400, "needs 'logprobs'"),
    (CHAT, chat(tools=[{"type": "function", "function": {"name": "f"}}] * 2), 400, "two tools are called 'f'"),
    (CHAT, chat(tool_choice="required"), 400, "there are no 'tools'"),
    (CHAT, chat(metadata={"a": 1}), 400, "'metadata.a'"),
    (CHAT, chat(chat_template_kwargs={"messages": []}), 400, "a field of the request"),
    (CHAT, chat(model=["tiny"]), 400, "'model' must be of type string"),
    (CHAT, chat(model="x" * 100000), 404, "The model 'xxx"),
    (CHAT, chat(model="\U0001f600\n\x1b[31m"), 404, "does not exist here"),
    (CHAT, form({"type": 7}), 400, "a type that does not exist"),
    (CHAT, form({"pattern": "("}), 400, "unmatched ("),
    (CHAT, form({"type": "array", "minItems": 5, "maxItems": 2}), 400, "no value matches"),
    (CHAT, form({"type": "integer", "minimum": 10**30}), 400, "1e18"),
    (TEXT, {"prompt": []}, 400, "'prompt' must have at least 1 item"),
    (TEXT, {"prompt": [1, "a"]}, 400, "'prompt[1]' must be of type integer"),
    (TEXT, {"prompt": [[1, 2], "x"]}, 400, "'prompt[1]' must be of type array"),
    (TEXT, {"prompt": ["a"] * 3000}, 400, "'prompt' must have at most"),
    (TEXT, {"prompt": [10**20]}, 400, "'prompt[0]' must be at most 2147483647"),
    (TEXT, {"prompt": [101]}, 400, "not in the vocabulary"),
    (TEXT, {"prompt": "a", "logprobs": True}, 400, "'logprobs' must be of type integer"),
    (TEXT, {"prompt": "a", "best_of": 2, "stream": True}, 400, "best_of"),
    (RESPONSES, {"input": [None]}, 400, "'input[0]' must be of type object"),
    (RESPONSES, {"input": [{"type": "message"}]}, 400, "'input[0].role' is required"),
    (RESPONSES, {"input": [{"type": "item_reference", "id": "m"}]}, 400, "'item_reference' is not supported"),
    (RESPONSES, {"input": "a", "previous_response_id": "x" * 1000}, 400, "not found"),
    (RESPONSES, {"input": "a", "max_output_tokens": 10**25}, 400, "at most 1073741824"),
    (RESPONSES, {"input": "a", "tools": [{"type": "web_search"}]}, 400, "'web_search' is not supported"),
    (RESPONSES + "/resp_%00/cancel", {}, 404, "there is no response"),
    (MESSAGES, {"messages": HI}, 400, "'max_tokens' is required"),
    (MESSAGES, {"messages": HI, "max_tokens": None}, 400, "but is of type null"),
    (MESSAGES, {"messages": HI, "max_tokens": 2, "system": 7}, 400, "'system' must be of type"),
    (MESSAGES, {"messages": HI, "max_tokens": 2, "thinking": {"type": "enabled", "budget_tokens": -5}}, 400, "at least 0"),
    (MESSAGES, {"messages": HI, "max_tokens": 2, "stop_sequences": [""]}, 400, "must have at least 1 character"),
    ("/api/chat", b"", 400, "the body is empty"),
    ("/api/chat", {"model": "../../etc/passwd"}, 404, "not found"),
    ("/api/chat", {"model": "tiny", "messages": HI, "options": {"num_predict": 10**20}}, 400, "at most"),
    ("/api/chat", {"model": "tiny", "messages": HI, "options": []}, 400, "must be of type object"),
    ("/api/generate", {"model": "tiny", "prompt": 7}, 400, "'prompt' must be of type string"),
    ("/api/pull", {}, 400, "'model' is required"),
    ("/api/copy", {}, 404, "there is nothing at"),
    ("/v1/embeddings", {"input": [[]]}, 400, "'input[0]' must have at least 1 item"),
    ("/v1/embeddings", {"input": ["x"] * 3000}, 400, "'input' must have at most"),
    ("/v1/embeddings", {"input": "x", "dimensions": 10**9}, 400, "dimensions"),
    ("/tokenize", {"prompt": "x", "messages": HI}, 400, "either 'prompt' or 'messages'"),
    ("/detokenize", {"tokens": [-1]}, 400, "'tokens[0]' must be at least 0"),
    ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "../a"}, 403, "--lora-dir"),
    ("/v1/load_lora_adapter", {"lora_name": 7, "lora_path": "a"}, 400, "'lora_name' must be of type string"),
    ("/v1/unload_lora_adapter", {"lora_name": "tiny"}, 404, "cannot be found"),
    ("/v1/search", {"prompt": "x", "budget_tokens": 10**20}, 400, "at most"),
    ("/v1/rerank", {"query": "x", "documents": []}, 400, "must have at least 1 item"),
]


@pytest.mark.parametrize("path, body, status, says", REFUSED)
def test_refused(server, path, body, status, says):
    got, _, answer = server.post(path, body)
    error = answer["error"]
    message = error if isinstance(error, str) else error["message"]
    assert (got, says in message) == (status, True), message
    assert len(message) < 500


ACCEPTED = [
    (CHAT, {"messages": [{"role": "user", "content": "\0\u202e\ufeff\U0001f600" * 20}], "max_tokens": 2}),
    (CHAT, chat(temperature=1e-300)), (CHAT, chat(top_p=1e-300)), (CHAT, chat(seed=-2**63)), (CHAT, chat(stop="\0")),
    (CHAT, chat(max_tokens=2.0)), (CHAT, chat(user="x" * 100000)), (TEXT, {"prompt": "é ü \U0001f600", "max_tokens": 2}),
    (RESPONSES, {"input": "", "max_output_tokens": 2}), ("/tokenize", {"prompt": ""}), ("/detokenize", {"tokens": []}),
]


@pytest.mark.parametrize("path, body", ACCEPTED)
def test_accepted(server, path, body):
    assert server.post(path, body)[0] == 200


def exchange(server, raw):
    """What the server sends until it closes or is quiet."""
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.settimeout(2)
        s.sendall(raw)
        got = b""
        try:
            while part := s.recv(65536):
                got += part
        except OSError:
            pass
        return got


@pytest.mark.parametrize("head, status", [
    (b"GET /health HTTP/1.1\r\n", 400), (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a b\r\n", 400), (b"GET /health HTTP/1.0\r\n", 200),
    (b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n", 400),
    (b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n", 501),
    (b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
])
def test_one_answer_and_no_request_in_the_body(server, head, status):
    answer = exchange(server, head + b"\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.%d %d " % (b"HTTP/1.1" in head, status))
    assert answer.count(b"HTTP/1.") == 1 and b'"list"' not in answer


def test_clients_that_hang_up(server):
    body = json.dumps({**chat(), "stream": True, "max_tokens": 500}).encode()
    raw = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    for cut in range(0, len(body), 7):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(raw + body[:cut])
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(raw + body)
    assert server.until(lambda: server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") == 0, 60)
    assert server.post(CHAT, chat())[0] == 200
