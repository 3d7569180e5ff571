"""Several models in one server: chosen by name, loaded on first use, unloaded when memory is short."""

import json
import threading
import urllib.request

import pytest

from conftest import GOLDENS
from serving import Server
from tiny_model import write_tiny_model

MESSAGES = [{"role": "user", "content": "Hi"}]
SMALL = ("--kv-tokens", 4096, "--parallel", 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """one.gguf, two.gguf, a Hugging Face folder, and files that are no models."""
    made = tmp_path_factory.mktemp("models")
    write_tiny_model(made / "one.gguf", seed=1)
    write_tiny_model(made / "two.gguf", seed=2)
    (made / "broken.gguf").write_bytes(b"GGUF" + bytes(40))
    (made / "notes.txt").write_text("no model")
    (made / "empty").mkdir()
    (made / "golden").symlink_to(GOLDENS / "llama_gqa")
    return made


@pytest.fixture(scope="module")
def several(folder):
    with Server(folder, *SMALL) as running:
        yield running


@pytest.fixture(scope="module")
def answers(folder):
    """The answer of each model, alone in a server."""
    found = {}
    for name in ("one", "two"):
        with Server(folder / f"{name}.gguf", *SMALL) as alone:
            found[name] = chat(alone, name)[2]["choices"][0]["message"]["content"]
    assert found["one"] != found["two"]
    return found


def chat(server, model, **more):
    return server.post("/v1/chat/completions",
                       {"model": model, "messages": MESSAGES, "max_tokens": 12, "temperature": 0, **more})


def listed(server):
    return {model["id"]: model for model in server.get("/v1/models")[2]["data"]}


def states(server):
    return {name: model["state"] for name, model in listed(server).items()}


def bytes_of_one(server):
    chat(server, "one")
    return listed(server)["one"]["bytes"]


def test_models_are_loaded_when_they_are_asked_for(folder, answers):
    with Server(folder, *SMALL) as server:
        assert states(server) == {"broken": "failed", "golden": "failed", "one": "unloaded", "two": "unloaded"}
        warned = server.events("message")
        assert [line["level"] for line in warned] == ["warning"] * 2
        assert "broken cannot be loaded" in warned[0]["message"] and "golden cannot be loaded" in warned[1]["message"]
        assert all(line.startswith("{") for line in server.log), server.log
        made = chat(server, "two")[2]
        assert made["model"] == "two" and made["choices"][0]["message"]["content"] == answers["two"]
        assert states(server)["two"] == "loaded" and states(server)["one"] == "unloaded"
        assert listed(server)["two"]["bytes"] > 0 and listed(server)["two"]["max_model_len"] == 2048
        assert chat(server, "one")[2]["choices"][0]["message"]["content"] == answers["one"]
        assert states(server)["two"] == "loaded", "there is memory for both"
        status, _, error = server.post("/v1/completions", {"model": "golden", "prompt": "abc", "max_tokens": 4})
        assert status == 503 and "tokenizer" in error["error"]["message"], "a folder without one"
        assert server.get("/v1/models/two")[2]["state"] == "loaded"
        assert server.reaches("vllm:generation_tokens_total", 24)


def test_every_protocol_chooses(several, answers):
    headers = {"anthropic-version": "2023-06-01"}
    ollama = {"messages": MESSAGES, "stream": False, "options": {"num_predict": 12, "temperature": 0}}
    for name, expected in answers.items():
        made = several.post("/v1/messages", {"model": name, "messages": MESSAGES, "max_tokens": 12, "temperature": 0},
                            headers=headers)[2]
        assert made["content"][0]["text"] == expected and made["model"] == name
        assert several.post("/api/chat", {"model": name + ":latest", **ollama})[2]["message"]["content"] == expected
        made = several.post("/v1/responses", {"model": name, "input": "Hi", "max_output_tokens": 12, "temperature": 0})[2]
        assert made["output"][0]["content"][0]["text"] == expected
        assert several.post("/tokenize", {"model": name, "prompt": "abc"})[0] == 200
        assert several.post("/api/show", {"model": name})[2]["details"]["family"] == "llama"
        assert several.get(f"/tokenizer_info?model={name}")[0] == 200
    assert {m["name"] for m in several.get("/api/tags")[2]["models"]} == {"broken", "golden", "one", "two"}
    assert {m["name"] for m in several.get("/api/ps")[2]["models"]} == {"one", "two"}
    assert {m["id"] for m in several.get("/v1/models", headers=headers)[2]["data"]} == {"broken", "golden", "one", "two"}


def test_an_unknown_name_is_404_in_the_form_of_each_protocol(several):
    status, _, error = chat(several, "gpt-4o")
    assert status == 404 and error["error"]["code"] == "model_not_found" and error["error"]["param"] == "model"
    status, _, error = several.post("/v1/messages", {"model": "claude", "messages": MESSAGES, "max_tokens": 5})
    assert status == 404 and error["error"]["type"] == "not_found_error"
    status, _, error = several.post("/api/chat", {"model": "llama3", "messages": MESSAGES})
    assert status == 404 and "llama3" in error["error"]
    assert several.get("/v1/models/none")[0] == 404
    assert several.post("/v1/chat/completions", b"{")[0] == 400
    assert several.get("/health/ready")[0] == 200


def test_a_broken_file_is_named_and_the_others_serve(several):
    status, headers, error = chat(several, "broken")
    assert status == 503 and error["error"]["code"] == "load_failed" and "broken.gguf" in error["error"]["message"]
    assert headers["Retry-After"]
    assert "broken.gguf" in listed(several)["broken"]["problem"]
    assert chat(several, "one")[0] == 200


def test_broken_files_are_found_at_the_start(tmp_path):
    good = write_tiny_model(tmp_path / "good.gguf").read_bytes()
    reasons = {"alien": "lxama", "cut": "cut.gguf", "lacks": "blk.1.ffn_up.weight"}
    (tmp_path / "alien.gguf").write_bytes(good.replace(b"llama", b"lxama", 1))
    (tmp_path / "cut.gguf").write_bytes(good[:len(good) // 2])
    (tmp_path / "lacks.gguf").write_bytes(good.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xp.weight"))
    with Server(tmp_path, *SMALL) as server:
        assert states(server) == {"good": "unloaded", **{name: "failed" for name in reasons}}
        warned = [line["message"] for line in server.events("message")]
        assert len(warned) == len(reasons), "one line each"
        for name, reason in reasons.items():
            assert reason in listed(server)[name]["problem"]
            assert sum(line.startswith(name + " cannot be loaded: ") for line in warned) == 1
        assert server.get("/health/ready")[0] == 200 and chat(server, "good")[0] == 200


def test_a_context_longer_than_the_training_of_one_model(millrace, tmp_path):
    short = write_tiny_model(tmp_path / "short.gguf", context=256)
    write_tiny_model(tmp_path / "long.gguf", context=1024)
    with Server(tmp_path, "--ctx", 512, "--parallel", 2, "--kv-tokens", 1024) as server:
        for name in ("short", "long"):
            assert chat(server, name)[0] == 200
        assert [listed(server)[name]["max_model_len"] for name in ("short", "long")] == [256, 512]
    assert "trained for 256 positions" in millrace.fails("run", "-m", short, "--ctx", "512", "hi", code=2)


def test_a_mended_file_loads(tmp_path, answers):
    write_tiny_model(tmp_path / "one.gguf", seed=1)
    (tmp_path / "two.gguf").write_bytes(b"no model")
    with Server(tmp_path, *SMALL) as server:
        assert chat(server, "two")[0] == 503
        write_tiny_model(tmp_path / "new", seed=2)
        (tmp_path / "new").rename(tmp_path / "two.gguf")
        assert chat(server, "two")[2]["choices"][0]["message"]["content"] == answers["two"]
        assert states(server)["two"] == "loaded"


def test_the_least_recently_used_model_is_unloaded(folder, several, answers):
    size = bytes_of_one(several)
    with Server(folder, *SMALL, "--models-memory", int(size * 1.5)) as server:
        for turn in range(3):
            for name, expected in answers.items():
                assert chat(server, name)[2]["choices"][0]["message"]["content"] == expected
                assert [n for n, state in states(server).items() if state == "loaded"] == [name]
        assert len(server.events("unloading")) == 5
        assert server.reaches("vllm:generation_tokens_total", 6 * 12), "totals survive an unload"
    with Server(folder, *SMALL, "--models-memory", int(size * 0.9)) as server:
        status, _, error = chat(server, "one")
        assert status == 503 and "--models-memory" in error["error"]["message"]


class Stream(threading.Thread):
    """Reads a long stream; `begun` is set at its first token, and `go_on` lets it read further."""

    def __init__(self, server, model, tokens=1500):
        super().__init__()
        body = {"model": model, "messages": MESSAGES, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                "stream": True}
        self.request = urllib.request.Request(server.url + "/v1/chat/completions", data=json.dumps(body).encode(),
                                              headers={"Content-Type": "application/json"})
        self.begun, self.lines = threading.Event(), []
        self.start()

    def run(self):
        with urllib.request.urlopen(self.request, timeout=120) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    self.lines.append(line[6:].strip())
                    if len(self.lines) == 3:
                        self.begun.set()

    def finish(self):
        self.join(120)
        assert self.lines[-1] == b"[DONE]"
        return json.loads(self.lines[-2])["choices"][0]["finish_reason"]


def test_a_stream_is_not_cut_while_another_model_loads(folder, several, answers):
    size = bytes_of_one(several)
    with Server(folder, *SMALL, "--models-memory", int(size * 1.5)) as server:
        stream = Stream(server, "one")
        assert stream.begun.wait(60)
        # The second model needs the memory of the first, and waits until its stream has ended.
        assert chat(server, "two")[2]["choices"][0]["message"]["content"] == answers["two"]
        assert stream.finish() == "length"
        assert states(server)["one"] == "unloaded" and states(server)["two"] == "loaded"
    with Server(folder, *SMALL) as server:  # memory for both: they run side by side
        stream = Stream(server, "one")
        assert stream.begun.wait(60)
        assert chat(server, "two")[2]["choices"][0]["message"]["content"] == answers["two"]
        assert stream.finish() == "length"


def test_requests_do_not_wait_longer_than_allowed(folder, several):
    size = bytes_of_one(several)
    with Server(folder, *SMALL, "--models-memory", int(size * 1.5), "--load-seconds", 0) as server:
        assert server.until(lambda: chat(server, "one")[0] == 200, 60)
        stream = Stream(server, "one", tokens=2000)
        assert stream.begun.wait(60)
        status, headers, error = chat(server, "two")
        assert status == 503 and error["error"]["code"] == "loading" and headers["Retry-After"]
        assert stream.finish() == "length"


def test_many_clients_of_both_models(folder, several, answers):
    size = bytes_of_one(several)
    wrong = []
    with Server(folder, *SMALL, "--models-memory", int(size * 1.5)) as server:
        def ask(name):
            for _ in range(4):
                status, _, made = chat(server, name)
                if status != 200 or made["choices"][0]["message"]["content"] != answers[name]:
                    wrong.append((status, made))

        clients = [threading.Thread(target=ask, args=(name,)) for name in ["one", "two"] * 3]
        for client in clients:
            client.start()
        for client in clients:
            client.join(120)
        assert not wrong


def test_stops_while_models_are_in_use(folder):
    with Server(folder, *SMALL) as server:
        streams = [Stream(server, name) for name in ("one", "two")]
        assert all(stream.begun.wait(60) for stream in streams)
        server.terminate()
        assert [stream.finish() for stream in streams] == ["length", "length"]
        assert server.process.wait(60) == 0


def test_misuse_of_serve_is_one_line(millrace, folder, tmp_path):
    one = folder / "one.gguf"
    assert "two models are called one" in millrace.fails("serve", "-m", one, "-m", one, code=2)
    assert "nosuch" in millrace.fails("serve", "-m", one, "-m", "nosuch")
    assert "no GGUF" in millrace.fails("serve", "-m", tmp_path)
    assert "one name for each" in millrace.fails("serve", "-m", folder, "--served-model-name", "x", code=2)
    assert "--models-memory" in millrace.fails("serve", "-m", folder, "--models-memory", "much", code=2)
    (tmp_path / "a.gguf").write_bytes(b"x")
    (tmp_path / "b.gguf").write_bytes(b"x")
    assert "b.gguf" in millrace.run("serve", "-m", tmp_path).stderr.decode()


def test_names_and_ps(millrace, folder):
    with Server(folder / "one.gguf", "-m", folder / "two.gguf", "--served-model-name", "a", "--served-model-name", "b",
                *SMALL) as server:
        assert set(states(server)) == {"a", "b"}
        assert chat(server, "b")[0] == 200
        found = {model["id"]: model for model in millrace.json("ps", "--url", server.url)["models"]}
        assert found["a"]["state"] == "unloaded" and found["b"]["state"] == "loaded" and found["b"]["bytes"] > 0
        table = millrace.run("ps", "--url", server.url + "/v1/").stdout.decode()
        assert table == millrace.run("ps", "--url", server.url.removeprefix("http://")).stdout.decode()
        assert "unloaded" in table and "loaded" in table
    assert "127.0.0.1:9" in millrace.fails("ps", "--url", "http://127.0.0.1:9")
