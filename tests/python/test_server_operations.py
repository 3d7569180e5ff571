"""Operation of the server: keys, TLS, settings, health, metrics, logs, shutdown."""

import json
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest
from serving import Server

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}
LONG = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1500, "temperature": 0, "ignore_eos": True}


def test_health(server):
    assert server.get("/health/live")[0] == 200
    assert server.get("/health/ready")[2] == {"status": "ready"}
    assert server.get("/health")[0] == 200


def test_unknown_addresses_and_methods(server):
    status, _, body = server.get("/v1/nothing")
    assert status == 404 and body["error"]["code"] == "not_found"
    for path in ("/v1/chat/completions", "/v1/responses/input_tokens"):  # the second is no id of a response
        status, headers, _ = server.get(path)
        assert status == 405 and headers["Allow"] == "POST"
    for path in ("/../../etc/passwd", "/%2e%2e/etc/passwd", "/etc/passwd"):
        assert server.get(path)[0] == 404


def test_request_ids(server):
    _, headers, _ = server.post("/v1/chat/completions", CHAT, headers={"X-Request-Id": "my-id.7"})
    assert headers["X-Request-Id"] == "my-id.7"
    assert server.until(lambda: any(e["id"] == "my-id.7" and e["status"] == 200 for e in server.events("request")))
    event = [e for e in server.events("request") if e["id"] == "my-id.7"][0]
    assert event["completion_tokens"] == 4 and event["path"] == "/v1/chat/completions"
    _, headers, _ = server.get("/health", headers={"X-Request-Id": "bad id\t{}"})
    assert headers["X-Request-Id"].startswith("req_")


def test_content_type(server):
    assert server.post("/v1/chat/completions", CHAT, headers={"Content-Type": "text/plain"})[0] == 415
    assert server.post("/v1/chat/completions", CHAT, headers={"Content-Type": "Application/JSON; charset=UTF-8"})[0] == 200


def test_metrics(server):
    before = server.metric("vllm:generation_tokens_total")
    server.post("/v1/chat/completions", CHAT)
    assert server.until(lambda: server.metric("vllm:generation_tokens_total") >= before + 4)
    text = server.get("/metrics")[2].decode()
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                 "vllm:prefix_cache_hits_total", "vllm:time_to_first_token_seconds_bucket",
                 "vllm:inter_token_latency_seconds_bucket", "vllm:e2e_request_latency_seconds_count",
                 "vllm:prompt_tokens_total", "vllm:request_success_total", "http_requests_total"):
        assert f"\n{name}{{" in text, name
    assert 'finished_reason="length"' in text


def test_cached_tokens_are_reported(server):
    body = {**CHAT, "messages": [{"role": "user", "content": "A prefix that is long enough to share. " * 10}]}
    server.post("/v1/chat/completions", body)
    usage = server.post("/v1/chat/completions", body)[2]["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 100


def test_keys(tiny_chat, tmp_path):
    file = tmp_path / "keys"
    file.write_text("# staff\nalice sk-alice-secret\n")
    with Server(tiny_chat, "--api-key-file", file, env={"MILLRACE_API_KEYS": "sk-from-environment"}) as server:
        for headers in ({}, {"Authorization": "Bearer wrong-key"}, {"Authorization": "sk-alice-secret"}):
            status, answer, body = server.post("/v1/chat/completions", CHAT, headers=headers)
            assert status == 401 and body["error"]["code"] == "invalid_api_key" and answer["WWW-Authenticate"] == "Bearer"
        assert server.get("/v1/models")[0] == 401
        assert server.post("/tokenize", {"prompt": "x"})[0] == 401
        assert server.get("/health")[0] == 200 and server.get("/metrics")[0] == 200
        for key in ("sk-alice-secret", "sk-from-environment"):
            assert server.post("/v1/chat/completions", CHAT, headers={"Authorization": f"Bearer {key}"})[0] == 200
        assert "bearer" in server.get("/openapi.json")[2]["components"]["securitySchemes"]
        server.stop()
        log = "".join(server.log)
        assert '"client":"alice"' in log
        for secret in ("sk-alice-secret", "sk-from-environment", "wrong-key"):
            assert secret not in log


def test_cors(tiny_chat):
    with Server(tiny_chat, "--cors", "http://ours.example") as server:
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        status, headers, _ = server.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "http://ours.example", **asks})
        assert status == 204 and headers["Access-Control-Allow-Origin"] == "http://ours.example"
        assert headers["Access-Control-Allow-Headers"] == "authorization"
        theirs = "authorization, content-type, x-stainless-lang, x-stainless-retry-count"  # sent by the openai package for JavaScript
        asks["Access-Control-Request-Headers"] = theirs
        _, headers, _ = server.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "http://ours.example", **asks})
        assert headers["Access-Control-Allow-Headers"] == theirs
        _, headers, _ = server.get("/v1/models", headers={"Origin": "http://ours.example"})
        assert headers["Access-Control-Allow-Origin"] == "http://ours.example"
        _, headers, _ = server.get("/v1/models", headers={"Origin": "http://theirs.example"})
        assert headers["Access-Control-Allow-Origin"] is None


def test_tls(tiny_chat, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with Server(tiny_chat, "--tls-cert", certificate, "--tls-key", key, wait=False) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))

        def post(path, body):
            request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
            return urllib.request.urlopen(request, context=context, timeout=30)

        def ready():
            try:
                return urllib.request.urlopen(server.url + "/health/ready", context=context, timeout=5).status == 200
            except OSError:
                return False

        assert server.until(ready, 60)
        with post("/v1/chat/completions", CHAT) as answer:
            whole = json.load(answer)["choices"][0]["message"]["content"]
        with post("/v1/chat/completions", {**CHAT, "stream": True}) as answer:
            events = [json.loads(line[6:]) for line in answer.read().decode().splitlines() if line.startswith("data: {")]
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == whole
        with pytest.raises(OSError):  # the port speaks TLS only
            urllib.request.urlopen(server.url.replace("https", "http") + "/health", timeout=5)
        assert server.stop() == 0


def test_settings_from_file_and_environment(tiny_chat, tmp_path):
    config = tmp_path / "serve.json"
    config.write_text('{"served-model-name": ["filed", "alias"], // comments are fine\n "max-body-mb": 1}')
    with Server(tiny_chat, "--config", config) as server:
        assert [m["id"] for m in server.get("/v1/models")[2]["data"]] == ["filed", "alias"]
        assert server.post("/v1/chat/completions", {**CHAT, "model": "alias"})[0] == 200
        assert server.post("/v1/chat/completions", b" " * (2 << 20))[0] == 413
    with Server(tiny_chat, "--config", config, env={"MILLRACE_SERVED_MODEL_NAME": "environed"}) as server:
        assert server.get("/v1/models")[2]["data"][0]["id"] == "environed"
    with Server(tiny_chat, "--config", config, "--served-model-name", "flagged", env={"MILLRACE_SERVED_MODEL_NAME": "e"}) as server:
        assert server.get("/v1/models")[2]["data"][0]["id"] == "flagged"


def test_the_model_has_the_name_of_its_file(tiny_chat, tmp_path):
    copy = tmp_path / "my.model.Q4_0.gguf"
    copy.write_bytes(tiny_chat.read_bytes())
    for model, name in ((tiny_chat, tiny_chat.stem), (copy, "my.model.Q4_0")):
        with Server(model) as server:
            assert [m["id"] for m in server.get("/v1/models")[2]["data"]] == [name]
            assert server.post("/v1/chat/completions", CHAT)[2]["model"] == name
            assert server.post("/v1/responses", {"input": "x", "max_output_tokens": 1})[2]["model"] == name


def test_names_are_escaped_in_addresses(tiny_chat):
    """A name with a slash, escaped as SDKs do."""
    with Server(tiny_chat, "--served-model-name", "maker/model 100%") as server:
        for address in ("maker/model%20100%", "maker%2Fmodel%20100%25", "maker%2fmodel%20100%"):
            status, _, body = server.get(f"/v1/models/{address}")
            assert status == 200 and body["id"] == "maker/model 100%", address
        assert server.get("/v1/models/maker%2Gmodel%20100%25")[0] == 404


def test_the_address_of_ipv6_is_one_that_clients_take(tiny_chat):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with Server(tiny_chat, "--host", "::1") as server:  # Server() has already connected to this address
        assert server.url.startswith("http://[::1]:")


def test_bad_settings(millrace, tiny_chat, tmp_path):
    config = tmp_path / "bad.json"
    config.write_text('{"prot": 1}')
    assert "prot" in millrace.fails("serve", "-m", tiny_chat, "--config", config, code=2)
    config.write_text('{"port": "x"}')
    millrace.fails("serve", "-m", tiny_chat, "--config", config, code=2)
    millrace.fails("serve", "-m", tiny_chat, "--tls-cert", config, code=2)
    assert "no.such" in millrace.fails("serve", "-m", tiny_chat, "--host", "no.such.address.invalid", code=2)


def test_a_model_that_cannot_be_loaded_ends_the_server(millrace, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    done = millrace.run("serve", "-m", broken, "--port", "0")
    assert done.returncode == 1 and b"broken.gguf" in done.stderr.splitlines()[-1]


def test_drain_lets_streams_finish(tiny_chat):
    with Server(tiny_chat) as server:
        result = {}

        def run():
            result["answer"] = server.post("/v1/chat/completions", {**LONG, "n": 16})  # a single choice would end too quickly

        thread = threading.Thread(target=run)
        thread.start()
        assert server.until(lambda: server.metric("vllm:num_requests_running") > 0)
        server.terminate()
        assert server.process.wait(60) == 0
        thread.join()
        status, _, body = result["answer"]
        assert status == 200 and body["usage"]["completion_tokens"] == 16 * 1500
        assert server.events("stopped")[0]["clean"] is True


def test_drain_ends_what_takes_too_long(tiny_chat):
    with Server(tiny_chat, "--drain-seconds", "0") as server:
        lines = []

        def run():
            request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps({**LONG, "n": 16, "stream": True}).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                lines.extend(answer.read().decode().splitlines())

        thread = threading.Thread(target=run)
        thread.start()
        assert server.until(lambda: server.metric("vllm:num_requests_running") > 0)
        begun = time.monotonic()
        server.terminate()
        assert server.process.wait(30) == 0
        assert time.monotonic() - begun < 10
        thread.join()
        last = [line for line in lines if line.startswith("data: ")][-1]
        assert json.loads(last[6:])["error"]["code"] == "shutting_down"


def test_second_signal_ends_at_once(tiny_chat):
    with Server(tiny_chat) as server:
        thread = threading.Thread(target=lambda: server.process.wait())
        threading.Thread(target=lambda: _ignore(lambda: server.post("/v1/chat/completions", {**LONG, "n": 32})), daemon=True).start()
        assert server.until(lambda: server.metric("vllm:num_requests_running") > 0)
        server.terminate()
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()


def _ignore(action):
    try:
        action()
    except OSError:
        pass
