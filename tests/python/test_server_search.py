"""Search over a tree of continuations."""

import pytest

from serving import Server
from tiny_model import write_tiny_model


def ask(server, **fields):
    return server.post("/v1/search", {"prompt": "hello", "seed": 3, **fields})


def test_budget_and_values(server):
    status, _, body = ask(server, budget_tokens=200, segment_tokens=4, max_tokens=16, n=5)
    assert status == 200 and body["object"] == "search"
    assert 0 < body["usage"]["completion_tokens"] <= 200
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
    values = [choice["value"] for choice in body["choices"]]
    assert values == sorted(values, reverse=True) and len(values) <= 5
    assert all(choice["tokens"] <= 16 for choice in body["choices"])
    assert body["expansions"] > 1
    again = ask(server, budget_tokens=200, segment_tokens=4, max_tokens=16, n=5)[2]
    assert again["choices"] == body["choices"]


def test_value_is_the_mean_log_probability(server):
    body = ask(server, budget_tokens=60, segment_tokens=4, max_tokens=8)[2]
    best = body["choices"][0]
    scored = server.post("/v1/completions", {"prompt": "hello" + best["text"], "max_tokens": 0, "echo": True, "logprobs": 0})[2]
    rows = scored["choices"][0]["logprobs"]["token_logprobs"][-best["tokens"] :]
    assert len(rows) == best["tokens"] and best["value"] == pytest.approx(sum(rows) / len(rows), abs=1e-2)


def test_an_answer_that_was_cut_says_so(server):
    body = ask(server, budget_tokens=60, segment_tokens=4, max_tokens=6, n=8)[2]
    reasons = {choice["tokens"] < 6: choice["finish_reason"] for choice in body["choices"]}
    assert reasons[False] == "length" and reasons.get(True, "stop") == "stop"


def test_messages(server):
    status, _, body = server.post("/v1/search", {"messages": [{"role": "user", "content": "hi"}], "budget_tokens": 30, "segment_tokens": 5})
    assert status == 200 and body["choices"] and body["usage"]["completion_tokens"] <= 30


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"budget_tokens": 0}, "budget_tokens"),
        ({}, "budget_tokens"),
        ({"budget_tokens": 10, "width": 0}, "width"),
        ({"budget_tokens": 10, "temperature": 0}, "temperature"),
        ({"budget_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}, "messages"),
        ({"budget_tokens": 100000, "max_tokens": 100000}, "max_tokens"),
    ],
)
def test_refusals(server, fields, param):
    status, _, body = ask(server, **fields)
    assert status == 400 and body["error"]["param"] == param


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A generator, and a judge that expects a b after each o."""
    folder = tmp_path_factory.mktemp("models")
    write_tiny_model(folder / "one.gguf", seed=1)
    write_tiny_model(folder / "judge.gguf", chain={"o": "b"})
    with Server(folder, "--kv-tokens", 4096, "--parallel", 8) as running:
        yield running


def test_a_second_model_gives_the_values(judged):
    fields = {"model": "one", "budget_tokens": 300, "segment_tokens": 4, "max_tokens": 8, "n": 5}
    status, _, body = ask(judged, **fields, value_model="judge")
    assert status == 200 and body["model"] == "one"
    assert 0 < body["usage"]["completion_tokens"] <= 300 < body["usage"]["value_tokens"]
    values = [choice["value"] for choice in body["choices"]]
    assert values == sorted(values, reverse=True)
    for choice in body["choices"]:
        scored = judged.post("/v1/completions", {"model": "judge", "prompt": "hello" + choice["text"], "max_tokens": 0, "echo": True, "logprobs": 0})[2]
        rows = scored["choices"][0]["logprobs"]["token_logprobs"][len("hello") :]
        assert choice["value"] == pytest.approx(sum(rows) / len(rows), abs=1e-2)
    assert ask(judged, **fields, value_model="judge")[2]["choices"] == body["choices"]


def test_the_answer_that_the_second_model_prefers_wins(judged, tmp_path):
    fields = {"model": "one", "budget_tokens": 200, "width": 32, "segment_tokens": 1, "max_tokens": 1, "temperature": 2}
    plain = [choice["text"] for choice in ask(judged, **fields, n=100)[2]["choices"]]
    wanted = [text for text in plain if text.isalpha() and text not in (plain[0], "o")][-1]
    write_tiny_model(tmp_path / "one.gguf", seed=1)
    write_tiny_model(tmp_path / "judge.gguf", chain={"o": wanted})
    with Server(tmp_path, "--kv-tokens", 4096, "--parallel", 8) as server:
        best = ask(server, **fields, value_model="judge")[2]["choices"][0]
        assert best["text"] == wanted != plain[0] and best["value"] > -0.5


def test_the_model_may_judge_itself(judged):
    fields = {"model": "one", "budget_tokens": 60, "segment_tokens": 4, "max_tokens": 8}
    own, plain = ask(judged, **fields, value_model="one")[2], ask(judged, **fields)[2]
    assert own["choices"][0]["value"] == pytest.approx(plain["choices"][0]["value"], abs=1e-2)
    assert "value_tokens" not in plain["usage"]


def test_a_value_model_that_is_not_there(judged, server):
    for running in (judged, server):
        status, _, body = ask(running, budget_tokens=10, value_model="nosuch", **({"model": "one"} if running is judged else {}))
        assert status == 404 and body["error"]["param"] == "value_model" and "nosuch" in body["error"]["message"]
    assert ask(server, budget_tokens=10, value_model="tiny")[0] == 200
