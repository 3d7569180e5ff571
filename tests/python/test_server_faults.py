"""Misbehaving clients, and too many of them: the server keeps running and loses no request.

Every core computes here, as in production; scripts/test also runs this with ASan and UBSan (MILLRACE_BUILD=build/debug).
"""

import json
import re
import socket
import struct
import threading
import time

import pytest
import serving

EVERY_CORE = 0


def Server(*args, **kwargs):
    return serving.Server(*args, threads=EVERY_CORE, **kwargs)


CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}
LONG = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1900, "temperature": 0, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def server(tiny_chat):
    with Server(tiny_chat) as running:
        yield running
        assert running.process.poll() is None, "".join(running.log[-20:])
        assert running.post("/v1/chat/completions", CHAT)[0] == 200


def connect(server):
    s = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def http(body, path="/v1/chat/completions", headers=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def idle(server):
    return server.metric("vllm:num_requests_running") == 0 and server.metric("vllm:num_requests_waiting") == 0


def status_of(s):
    data = b""
    while b"\r\n\r\n" not in data:
        got = s.recv(65536)
        if not got:
            break
        data += got
    found = re.match(rb"HTTP/1\.[01] (\d+)", data)
    return int(found[1]) if found else None


@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_client_vanishes_mid_stream(server, how):
    s = connect(server)
    s.sendall(http(LONG))
    assert b"200 OK" in s.recv(4096)
    s.recv(1000)
    if how == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    begun = time.monotonic()
    if how == "half":
        s.shutdown(socket.SHUT_WR)
    else:
        s.close()
    assert server.until(lambda: idle(server), 3), "its work goes on"
    assert time.monotonic() - begun < 3
    s.close()


def test_client_vanishes_while_it_waits(server):
    s = connect(server)
    s.sendall(http({**LONG, "stream": False}))
    time.sleep(0.1)
    s.close()
    assert server.until(lambda: idle(server), 3)


def test_client_vanishes_mid_request(server):
    for cut in (10, 60, 150):
        s = connect(server)
        s.sendall(http(CHAT)[:cut])
        s.close()


def test_slow_reader(server):
    """A client that never reads is disconnected once its buffers are full; others are not affected."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", server.port))
    s.sendall(http({**LONG, "n": 16, "logprobs": True, "top_logprobs": 20}))
    answers = [server.post("/v1/chat/completions", CHAT)[0] for _ in range(5)]
    assert answers == [200] * 5
    assert server.until(lambda: idle(server), 60)
    s.close()


def test_half_open_sockets(server):
    quiet = [connect(server) for _ in range(50)]
    begun = [connect(server) for _ in range(50)]
    for s in begun:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Le")
    assert server.post("/v1/chat/completions", CHAT)[0] == 200
    begun[0].settimeout(20)
    assert status_of(begun[0]) == 408
    for s in quiet + begun:
        s.close()


def test_large_bodies(server):
    assert server.post("/v1/chat/completions", b"x" * (10 << 20))[0] == 413
    s = connect(server)
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10485760\r\nExpect: 100-continue\r\n\r\n")
    assert status_of(s) == 413
    s.close()
    s = connect(server)  # chunked: the size is unknown in advance
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    try:
        for _ in range(100):
            s.sendall(b"20000\r\n" + b"x" * 0x20000 + b"\r\n")
    except OSError:
        pass
    assert status_of(s) == 413
    s.close()
    text = {"messages": [{"role": "user", "content": "x" * (7 << 20)}]}
    status, _, body = server.post("/v1/chat/completions", text)
    assert status == 400 and body["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("body", [
    b"[" * 100000 + b"]" * 100000,
    b'{"messages":' * 5000 + b"1" + b"}" * 5000,
    b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
    b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    b'{"messages":[{"role":"user","content":"a"}],"temperature":1e999}',
    b"{" + b",".join(b'"k%d":1' % i for i in range(100000)) + b"}",
    b"", b"null", b"1", b'"x"', b"{", b"\0" * 1000, b'{"messages":[{"role":"user","content":"a"}]}}',
])
def test_hostile_json(server, body):
    status, _, answer = server.post("/v1/chat/completions", body)
    assert status == 400 and answer["error"]["type"] == "invalid_request_error"


def test_deep_schema_and_arguments(server):
    schema = {"type": "object"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"a": schema}}
    status, _, _ = server.post("/v1/chat/completions", {**CHAT, "response_format": {
        "type": "json_schema", "json_schema": {"name": "deep", "schema": schema}}})
    assert status == 400
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "[" * 100000}}]
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": calls}]
    assert server.post("/v1/chat/completions", {"messages": messages})[0] == 400  # far more than the context


HOSTILE_FORMS = [
    {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [f"value{i}" for i in range(100000)]}}},
    {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "minLength": 1000000}}},
    {"type": "json_schema", "json_schema": {"name": "x", "schema": {
        "allOf": [{"anyOf": [{"minimum": i}, {"maximum": -i}, {"multipleOf": 2}, {"type": "integer"}]} for i in range(12)]}}},
    {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#/properties/a", "properties": {"a": {"$ref": "#"}}}}},
    {"type": "regex", "regex": "((a{0,100}){0,100}){0,100}"},
    {"type": "regex", "regex": "a{1000000}"},
    {"type": "regex", "regex": "(" * 10000},
    {"type": "grammar", "grammar": 'root ::= (("a"{0,9999}){0,9999}){0,9999}'},
    {"type": "grammar", "grammar": "root ::= " + "(" * 100000},
    {"type": "grammar", "grammar": "root ::= a0\n" + "".join(f'a{i} ::= a{(i + 1) % 3000} "x" | "y"\n' for i in range(3000))},
]


def test_hostile_forms_are_refused_while_streams_run(server):
    s = connect(server)
    s.sendall(http(LONG))
    assert b"200 OK" in s.recv(4096)
    for form in HOSTILE_FORMS:
        begun = time.monotonic()
        status, _, body = server.post("/v1/chat/completions", {**CHAT, "response_format": form})
        assert status == 400 and body["error"]["message"], (form["type"], status)
        assert time.monotonic() - begun < 3
        s.settimeout(5)
        assert s.recv(1000), "the stream goes on"
    s.close()


@pytest.mark.parametrize("garbage", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 50000,
])
def test_no_http(server, garbage):
    s = connect(server)
    s.sendall(garbage)
    assert status_of(s) in (400, 413, 431)
    s.close()


def test_thousand_connections(server):
    sockets = []
    try:
        for _ in range(1000):
            sockets.append(connect(server))
        assert server.get("/health")[0] == 200
        assert server.post("/v1/chat/completions", CHAT)[0] == 200
        for s in sockets[::10]:
            s.sendall(http(CHAT))
        assert [status_of(s) for s in sockets[::10]] == [200] * 100
    finally:
        for s in sockets:
            s.close()
    assert server.until(lambda: server.metric("millrace:connections") < 20)


def test_too_many_connections(tiny_chat):
    with Server(tiny_chat, "--max-connections", "20") as server:
        sockets = [connect(server) for _ in range(40)]
        time.sleep(0.3)
        refused = 0
        for s in sockets:
            s.settimeout(0.2)
            try:
                refused += s.recv(100).startswith(b"HTTP/1.1 503")
            except OSError:
                pass
            s.close()
        assert refused >= 18
        assert server.until(lambda: server.get("/health")[0] == 200)


def test_connections_that_ended_do_not_count(tiny_chat):
    with Server(tiny_chat, "--max-connections", "4") as server:
        for _ in range(50):  # one after the other
            assert server.get("/health")[0] == 200


def test_full_queue(tiny_chat):
    with Server(tiny_chat, "--parallel", "1", "--max-queue", "2") as server:
        many = [connect(server) for _ in range(12)]
        for s in many:
            s.sendall(http(LONG))
        answers = [s.recv(4096) for s in many]
        refused = [a for a in answers if a.startswith(b"HTTP/1.1 429 ")]
        assert len(refused) >= 6 and all(a.startswith((b"HTTP/1.1 429 ", b"HTTP/1.1 200 ")) for a in answers)
        assert all(b"Retry-After: 1\r\n" in a and b"rate_limit_error" in a for a in refused)
        for s in many:
            s.close()
        assert server.until(lambda: server.post("/v1/chat/completions", CHAT)[0] == 200), "room again"


def test_kv_exhaustion(tiny_chat):
    """More streams than fit in the KV cache: all of them complete, some after waiting."""
    with Server(tiny_chat, "--kv-tokens", "2048", "--parallel", "16") as server:
        body = {**LONG, "stream": False, "max_tokens": 1000}
        results = [None] * 8

        def run(i):
            results[i] = server.post("/v1/chat/completions", body, timeout=120)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert [r[0] for r in results] == [200] * 8
        assert all(r[2]["usage"]["completion_tokens"] == 1000 for r in results)
        assert server.until(lambda: server.metric("vllm:kv_cache_usage_perc") == 0)


def test_terminated_under_load(tiny_chat):
    with Server(tiny_chat, "--drain-seconds", "20") as server:
        statuses = []

        def run():
            try:
                for _ in range(50):
                    statuses.append(server.post("/v1/chat/completions", {**CHAT, "max_tokens": 50})[0])
            except OSError:
                pass  # the listener is closed

        threads = [threading.Thread(target=run) for _ in range(16)]
        for t in threads:
            t.start()
        time.sleep(0.5)
        server.terminate()
        assert server.process.wait(40) == 0
        for t in threads:
            t.join()
        assert statuses and set(statuses) <= {200, 503, 429}
        assert statuses.count(200) >= 16


@pytest.mark.slow
def test_memory_stays_flat(server):
    """Two thousand requests of all kinds; scripts/soak does the same for any duration."""
    def burst(count):
        for i in range(count):
            kind = i % 5
            if kind == 0:
                s = connect(server)
                s.sendall(http(LONG))
                s.recv(500)
                s.close()
            elif kind == 1:
                server.post("/v1/chat/completions", {**CHAT, "n": 4, "messages": [{"role": "user", "content": str(i)}]})
            elif kind == 2:
                server.post("/v1/embeddings", {"input": f"text {i}"})
            elif kind == 3:
                server.post("/v1/completions", {"prompt": f"p {i}", "echo": True, "logprobs": 2, "max_tokens": 2})
            else:
                server.post("/v1/chat/completions", b"{")

    burst(500)
    assert server.until(lambda: idle(server))
    before = server.rss_kb()
    burst(2000)
    assert server.until(lambda: idle(server))
    assert server.rss_kb() < before * 1.05 + 4096
