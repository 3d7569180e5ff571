"""Search over a tree of continuations."""

import pytest


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
