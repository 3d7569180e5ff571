"""A cascade: the small model answers, and the mean log-probability of its answer decides whether the large one does."""

import json
import socket

import pytest

from conftest import ROOT
from serving import Server
from tiny_model import write_tiny_model

SMALL = ("--kv-tokens", 4096, "--parallel", 4)
TEXTS = ["Hi", "abc abc", "What?", "0 1 2", "Go on.", "xyz"]
TOOL = {"name": "look", "parameters": {"type": "object", "properties": {"up": {"type": "boolean"}}, "required": ["up"],
                                       "additionalProperties": False}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    write_tiny_model(made / "one.gguf", seed=1)
    write_tiny_model(made / "two.gguf", seed=2)
    return made


def cascade(folder, *args, small="one", large="two", threshold=None, **kwargs):
    pair = f"{folder / small}.gguf,{folder / large}.gguf"
    chosen = () if threshold is None else ("--threshold", threshold)
    return Server(folder / f"{small}.gguf", "--cascade", pair, *chosen, *SMALL, *args, **kwargs)


@pytest.fixture(scope="module", params=["one", "two"])
def extreme(request, folder):
    """A server whose cascade always takes the answer of the model of this name."""
    with cascade(folder, threshold="-inf" if request.param == "one" else "0") as running:
        running.member = request.param
        yield running


def chat(server, model="cascade", text="Hi", **more):
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 12, "temperature": 0, **more}
    if model:
        body["model"] = model
    status, _, made = server.post("/v1/chat/completions", body)
    assert status == 200, made
    return made


def content(answer):
    return answer["choices"][0]["message"]["content"]


def stream(server, path, body):
    """The parsed events, or lines, of a stream."""
    raw = server.post(path, {**body, "stream": True})[2]
    if isinstance(raw, dict):
        return [raw]
    lines = [line.removeprefix("data: ") for line in raw.decode().splitlines() if line and not line.startswith("event:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def mean_of(server, model, text):
    rows = chat(server, model, text, logprobs=True)["choices"][0]["logprobs"]["content"]
    return sum(row["logprob"] for row in rows) / len(rows)


def test_answers_equal_those_of_the_member(extreme):
    member = extreme.member
    for text in TEXTS[:3]:
        made, alone = chat(extreme, text=text), chat(extreme, member, text)
        assert content(made) == content(alone) and made["model"] == member
        assert chat(extreme, None, text)["model"] == member, "the cascade is the default"
        usage = made["usage"]
        assert {k: usage[k] for k in ("prompt_tokens", "completion_tokens")} == {k: alone["usage"][k] for k in ("prompt_tokens", "completion_tokens")}
        assert usage["cascade"]["answered_by"] == member
        assert usage["cascade"]["mean_logprob"] == pytest.approx(mean_of(extreme, "one", text), abs=1e-3)
        assert usage["cascade"]["small_completion_tokens"] == 12
        assert "cascade" not in alone["usage"] and made["choices"][0]["logprobs"] is None


def test_streams(extreme):
    body = {"model": "cascade", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12, "temperature": 0,
            "stream_options": {"include_usage": True}}
    events = stream(extreme, "/v1/chat/completions", body)
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"]) == content(chat(extreme, extreme.member))
    assert {e["model"] for e in events} == {extreme.member}
    assert events[-1]["usage"]["completion_tokens"] == 12 and events[-1]["usage"]["cascade"]["answered_by"] == extreme.member
    with_logprobs = stream(extreme, "/v1/chat/completions", {**body, "logprobs": True, "top_logprobs": 2})
    rows = [row for e in with_logprobs for c in e["choices"] for row in (c["logprobs"] or {"content": []})["content"]]
    assert len(rows) == 12 and all(len(row["top_logprobs"]) == 2 for row in rows)


PROTOCOLS = {
    "/v1/completions": ({"prompt": "Hi", "max_tokens": 12, "temperature": 0},
                        lambda a: (a["model"], a["choices"][0]["text"])),
    "/v1/responses": ({"input": "Hi", "max_output_tokens": 12, "temperature": 0},
                      lambda a: (a["model"], a["output"][0]["content"][0]["text"])),
    "/v1/messages": ({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12, "temperature": 0},
                     lambda a: (a["model"], a["content"][0]["text"])),
    "/api/chat": ({"messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 12, "temperature": 0}},
                  lambda a: (a["model"], a["message"]["content"])),
    "/api/generate": ({"prompt": "Hi", "options": {"num_predict": 12, "temperature": 0}},
                      lambda a: (a["model"], a["response"])),
}


def streamed(path, events):
    """Model and text of a streamed answer."""
    if path == "/v1/completions":
        return events[-1]["model"], "".join(e["choices"][0]["text"] for e in events)
    if path == "/v1/responses":
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
        assert events[0]["response"]["model"] == "cascade" and events[0]["response"]["id"] == events[-1]["response"]["id"]
        assert events[0]["response"]["created_at"] == events[-1]["response"]["created_at"]
        return events[-1]["response"]["model"], "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    if path == "/v1/messages":
        return events[0]["message"]["model"], "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
    text = "".join(e["message"]["content"] if "message" in e else e["response"] for e in events)
    return events[-1]["model"], text


@pytest.mark.parametrize("path", PROTOCOLS)
def test_every_protocol(extreme, path):
    body, read = PROTOCOLS[path]
    alone = extreme.post(path, {**body, "model": extreme.member, "stream": False})[2]
    made = extreme.post(path, {**body, "model": "cascade", "stream": False})[2]
    assert read(made) == read(alone) == streamed(path, stream(extreme, path, {**body, "model": "cascade"}))
    report = made["cascade"] if path.startswith("/api/") else made["usage"]["cascade"]
    assert report["answered_by"] == extreme.member and report["threshold"] <= 0


def test_what_a_chat_may_ask_for(extreme):
    member = extreme.member
    for more in ({"n": 3, "temperature": 1, "seed": 5}, {"stop": ["e", "a", "1"]}, {"logprobs": True, "top_logprobs": 3},
                 {"response_format": {"type": "regex", "regex": "[ab]{5}"}},
                 {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required", "max_tokens": 200}):
        made, alone = chat(extreme, **more), chat(extreme, member, **more)
        for a, b in zip(made["choices"], alone["choices"], strict=True):
            calls = [[c["function"] for c in x["message"].get("tool_calls", [])] for x in (a, b)]
            assert calls[0] == calls[1] and a["message"]["content"] == b["message"]["content"] and a["finish_reason"] == b["finish_reason"]
            assert (a["logprobs"] is None) == (b["logprobs"] is None)
        assert made["model"] == member


def test_a_background_response(extreme):
    body = {"model": "cascade", "input": "Hi", "max_output_tokens": 12, "temperature": 0}
    expected = extreme.post("/v1/responses", body)[2]["output"][0]["content"][0]["text"]
    begun = extreme.post("/v1/responses", {**body, "background": True})[2]
    assert begun["status"] == "in_progress" and begun["model"] == "cascade"
    done = lambda: extreme.get(f"/v1/responses/{begun['id']}")[2]
    assert extreme.until(lambda: done()["status"] in ("completed", "incomplete"), 60)
    assert done()["model"] == extreme.member and done()["output"][0]["content"][0]["text"] == expected
    both = stream(extreme, "/v1/responses", {**body, "background": True})
    assert streamed("/v1/responses", both) == (extreme.member, expected)


def test_models_and_metrics(extreme):
    listed = {m["id"]: m for m in extreme.get("/v1/models")[2]["data"]}
    assert list(listed) == ["cascade", "one", "two"]
    assert listed["cascade"]["cascade"]["small"] == "one" and listed["cascade"]["cascade"]["large"] == "two"
    assert extreme.get("/v1/models/cascade")[2] == listed["cascade"]
    assert [m["name"] for m in extreme.get("/api/tags")[2]["models"]] == ["cascade", "one", "two"]
    before = extreme.metric("millrace:cascade_answers_total")
    given_up = extreme.metric("millrace:cascade_given_up_tokens_total")
    chat(extreme), chat(extreme, "one")
    assert extreme.reaches("millrace:cascade_answers_total", before + 1)
    assert extreme.reaches("millrace:cascade_given_up_tokens_total", given_up + (12 if extreme.member == "two" else 0))
    assert f'answered_by="{extreme.member}"' in extreme.get("/metrics")[2].decode()


def test_ollama_shows_what_it_lists(extreme):
    for model in extreme.get("/api/tags")[2]["models"]:
        assert extreme.post("/api/show", {"model": model["name"]})[0] == 200


def test_what_makes_no_answer_names_a_member(extreme):
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/tokenize", {"prompt": "a"}),
                       ("/v1/search", {"prompt": "a", "budget_tokens": 10}),
                       ("/v1/completions", {"prompt": "a", "max_tokens": 0, "echo": True})):
        status, _, error = extreme.post(path, {**body, "model": "cascade"})
        assert status == 400 and error["error"]["param"] == "model" and "one or two" in error["error"]["message"]
        assert extreme.post(path, {**body, "model": "one"})[0] == 200
    assert extreme.post("/v1/chat/completions", {"model": "nosuch", "messages": []})[0] in (400, 404)


def test_the_mean_decides(folder):
    with cascade(folder, threshold="-inf") as server:
        means = {text: mean_of(server, "one", text) for text in TEXTS}
        large = {text: content(chat(server, "two", text)) for text in TEXTS}
        small = {text: content(chat(server, "one", text)) for text in TEXTS}
    order = sorted(means.values())
    threshold = (order[2] + order[3]) / 2
    with cascade(folder, f"--threshold={threshold}") as server:
        for _ in range(2):
            for text in TEXTS:
                made = chat(server, text=text)
                stays = means[text] > threshold
                assert (made["model"], content(made)) == (("one", small[text]) if stays else ("two", large[text]))
        assert server.reaches("millrace:cascade_answers_total", 12)


def test_threshold_auto(folder, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(TEXTS) + "\n\n")
    env = {"MILLRACE_CACHE": str(tmp_path / "cache")}
    found = []
    for share, expected in (("0.5", 3), ("0.5", 3), ("0.17", 1), ("1", 6), ("0", 0)):
        with cascade(folder, "--cascade-prompts", prompts, "--cascade-share", share, env=env) as server:
            found.append(server.get("/v1/models/cascade")[2]["cascade"]["threshold"])
            answers = [chat(server, text=text, max_tokens=64)["model"] for text in TEXTS]
            assert answers.count("two") == expected
    assert found[0] == found[1] and found[3] == 0
    (kept,) = (tmp_path / "cache" / "plans").glob("cascade-*.json")
    kept.write_text("{}")
    with cascade(folder, "--threshold", "auto", "--cascade-prompts", prompts, "--cascade-share", "0.5", env=env) as server:
        assert server.get("/v1/models/cascade")[2]["cascade"]["threshold"] == found[0], "a damaged file is made anew"


def test_the_default_prompts(folder, tmp_path):
    with cascade(folder, env={"MILLRACE_CACHE": str(tmp_path)}) as server:
        assert server.get("/v1/models/cascade")[2]["cascade"]["threshold"] < 0
    (kept,) = (tmp_path / "plans").glob("cascade-*.json")
    assert len(json.loads(kept.read_text())["means"]) == 40


def test_a_prompt_that_is_too_long_for_the_small_model(folder):
    write_tiny_model(folder / "short.gguf", seed=3, context=64)
    with cascade(folder, small="short", threshold="-inf") as server:
        made = chat(server, text="long " * 30)
        assert made["model"] == "two" and content(made) == content(chat(server, "two", "long " * 30))
        assert made["usage"]["cascade"]["mean_logprob"] is None and made["usage"]["cascade"]["small_completion_tokens"] == 0
        assert chat(server)["model"] == "short"
        status, _, error = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "long " * 900}]})
        assert status == 400 and error["error"]["code"] == "context_length_exceeded" and "2048" in error["error"]["message"]


def leave(server, body, after):
    """Sends a request and disconnects once the stream or the metric has got so far."""
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        assert server.until(lambda: after(client), 60)


def test_cancellation_in_both_phases(folder):
    write_tiny_model(folder / "brief.gguf", chain={"\n": "a", "a": "<|im_end|>"})
    write_tiny_model(folder / "endless.gguf", chain={"\n": "b", "b": "b"})
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "stream": True, "n": 128}
    runs = lambda server: server.metric("vllm:num_requests_running") > 0
    for small, large in (("endless", "brief"), ("brief", "endless")):
        with cascade(folder, small=small, large=large, threshold="0") as server:
            leave(server, body, lambda client: runs(server) and (small == "endless" or client.recv(4096)))
            assert server.until(lambda: server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") == 0)
            assert server.until(lambda: any(e["status"] == 499 for e in server.events("request")))
            assert chat(server, "brief")["choices"][0]["finish_reason"] == "stop"


def test_memory_for_one_of_the_two(folder, extreme):
    size = {m["id"]: m for m in extreme.get("/v1/models")[2]["data"]}[extreme.member]["bytes"]
    with cascade(folder, "--models-memory", int(size * 1.5), threshold="0") as server:
        for _ in range(2):
            assert chat(server)["model"] == "two"
            made = server.post("/v1/responses", {"input": "Hi", "max_output_tokens": 8, "background": True, "stream": True})
            assert made[0] == 200 and b"response.incomplete" in made[2]


def test_further_models_and_names(folder):
    write_tiny_model(folder / "other.gguf", seed=4)
    names = [x for name in ("a", "b", "c") for x in ("--served-model-name", name)]
    with cascade(folder, "-m", folder / "other.gguf", *names, threshold="0") as server:
        assert [m["id"] for m in server.get("/v1/models")[2]["data"]] == ["cascade", "a", "b", "c"]
        assert chat(server)["model"] == "b" and chat(server, "c")["model"] == "c"


def test_misuse_is_one_line(millrace, folder, tmp_path):
    one, two = folder / "one.gguf", folder / "two.gguf"
    bert = ROOT / "tests" / "data" / "encoders" / "bert"
    pair = ("--cascade", f"{one},{two}")
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(40))
    for args, said, code in (
            (("--cascade", one), "two models, SMALL,LARGE", 2),
            (("--cascade", f"{one},"), "two models, SMALL,LARGE", 2),
            (("--cascade", f"{one},{two},{one}"), "two models, SMALL,LARGE", 2),
            (("--cascade", f"{one},{one}"), "the same model", 2),
            (("--cascade", f"{one},{folder / '.' / 'one.gguf'}"), "the same model", 2),
            (("--cascade", f"{one},{folder}"), "folder of several models", 2),
            (("--cascade", f"{one},nosuch"), "nosuch", 1),
            (("--cascade", f"{one},{bert}"), "no logits", 2),
            (("--cascade", f"{one},{tmp_path / 'broken.gguf'}"), "broken.gguf", 1),
            (("--threshold", "-1"), "--threshold: only with --cascade", 2),
            (("--cascade-share", "0.5"), "--cascade-share: only with --cascade", 2),
            (("--cascade-prompts", "x"), "--cascade-prompts: only with --cascade", 2),
            ((*pair, "--threshold", "0.5"), "--threshold 0.5", 2),
            ((*pair, "--threshold", "nan"), "--threshold nan", 2),
            ((*pair, "--threshold", "high"), "--threshold high", 2),
            ((*pair, "--threshold", "-1", "--cascade-share", "0.5"), "only with --threshold auto", 2),
            ((*pair, "--threshold", "-1", "--cascade-prompts", "x"), "only with --threshold auto", 2),
            ((*pair, "--cascade-share", "1.5"), "--cascade-share", 2),
            ((*pair, "--cascade-prompts", tmp_path / "none.txt"), "none.txt", 1),
            ((*pair, "--cascade-prompts", tmp_path / "empty.txt"), "has no prompt", 2),
            ((*pair, "--threshold", "0", "--served-model-name", "cascade", "--served-model-name", "b"), "called cascade", 2)):
        assert said in millrace.fails("serve", *args, code=code), args
