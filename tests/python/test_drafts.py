"""Speculative decoding from the outside: --draft, its counters, explain --speculate and bench --draft-shape."""

import pathlib

import pytest

from serving import Server
from tiny_model import write_tiny_model

ROOT = pathlib.Path(__file__).parents[2]
ASK = ["--raw", "abcabcabcabc", "--temp", "0", "-n", "48", "--exact", "-t", "1"]


@pytest.fixture(scope="module")
def repeats(tmp_path_factory):
    """A model whose greedy answer to "abc" is "abcabc..."."""
    return write_tiny_model(tmp_path_factory.mktemp("model") / "repeats.gguf", chain={"a": "b", "b": "c", "c": "a"})


def test_drafts_change_no_text(millrace, repeats, tiny_chat):
    for model in (repeats, tiny_chat):
        wanted = millrace.json("run", "-m", model, *ASK, "--draft", "none")
        assert wanted["usage"]["drafted"] == wanted["usage"]["accepted"] == 0
        for draft in ("lookup", repeats, tiny_chat):
            assert millrace.json("run", "-m", model, *ASK, "--draft", draft)["tokens"] == wanted["tokens"], draft
        assert millrace.json("run", "-m", model, *ASK)["tokens"] == wanted["tokens"]
    assert millrace.json("run", "-m", repeats, *ASK, "--speculate", "off")["usage"]["drafted"] == 0
    found = millrace.json("run", "-m", repeats, *ASK, "--speculate", "ngram")["usage"]
    assert found == millrace.json("run", "-m", repeats, *ASK, "--draft", "lookup")["usage"]
    assert "different sources" in millrace.fails("run", "-m", repeats, *ASK, "--speculate", "ngram", "--draft", "mtp", code=2)
    assert millrace.json("run", "-m", repeats, *ASK, "--speculate", "off", "--draft", repeats)["usage"]["drafted"] == 0


def test_draft_models_that_cannot_be_used_are_named(millrace, tiny_chat, tmp_path):
    other = write_tiny_model(tmp_path / "other.gguf", extra=["<|more|>"])
    message = millrace.fails("run", "-m", tiny_chat, *ASK, "--draft", other, code=2)
    assert "other.gguf" in message and "<|more|>" in message
    assert "nowhere.gguf" in millrace.fails("run", "-m", tiny_chat, *ASK, "--draft", tmp_path / "nowhere.gguf")


def test_heads_draft(millrace):
    ask = ["--tokens", "5,9,40,33,8,21,60,17", "--temp", "0", "-n", "40", "--exact", "-t", "1", "--ctx", "128"]
    heads = ROOT / "tests/data/heads"
    for model, draft in ((heads / "glm4_moe", "mtp"), (heads / "qwen3_next/model.gguf", "mtp"),
                         (heads / "right_mtp", "mtp"), (heads / "eagle3_target", heads / "eagle3"),
                         (heads / "right_eagle3_target", heads / "right_eagle3")):
        wanted = millrace.json("run", "-m", model, *ask, "--draft", "none")
        for kind in (draft, "auto"):
            assert millrace.json("run", "-m", model, *ask, "--draft", kind)["tokens"] == wanted["tokens"], (model, kind)
    goldens = ROOT / "tests/data/goldens"
    assert "carries no heads" in millrace.fails("run", "-m", goldens / "glm4_moe", *ask, "--draft", "mtp", code=2)
    message = millrace.fails("run", "-m", goldens / "llama_gqa", *ask, "--draft", heads / "eagle3")
    assert "EAGLE-3" in message and "\n" not in message.strip()


def test_a_server_counts_drafts(repeats):
    ask = {"prompt": "abcabcabcabc", "temperature": 0, "max_tokens": 64}
    for args in (["--draft", "lookup"], ["--draft", repeats, "--exact"], ["--draft", "none"]):
        with Server(repeats, *map(str, args)) as server:
            status, _, body = server.post("/v1/completions", ask)
            assert status == 200 and body["choices"][0]["text"] == ("abc" * 30)[:64]
            details = body["usage"]["completion_tokens_details"]
            accepted, rejected = details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]
            assert body["usage"]["completion_tokens"] == 64 and accepted < 64
            assert server.reaches("vllm:generation_tokens_total", 64)
            assert server.reaches("millrace:accepted_tokens_total", accepted)
            assert server.reaches("millrace:wasted_draft_tokens_total", rejected)
            assert server.reaches("millrace:drafted_tokens_total", accepted + rejected)
            if args[1] == "none":
                assert accepted == rejected == 0


def test_explain_shows_what_drafts_cost(millrace, tiny):
    costs = millrace.json("explain", "-m", tiny, "-b", "1,4", "-d", "64", "--speculate")["speculation"]
    assert {c["batch"] for c in costs} == {1, 4} and {c["draft"] for c in costs} >= {0, 1, 4, 15}
    assert all(c["step_us"] > 0 for c in costs) and all(c["break_even"] > 0 for c in costs if c["draft"] > 0)
    table = millrace.run("explain", "-m", tiny, "--speculate").stdout.decode()
    assert "break-even" in table and len(table.splitlines()) == 1 + 2 * 9
    heads = ROOT / "tests/data/heads"
    ask = ("explain", "-m", heads / "eagle3_target", "-b", "1", "-d", "32", "--speculate")
    free = millrace.json(*ask)["speculation"]
    paid = millrace.json(*ask, "--draft", heads / "eagle3")["speculation"]
    assert [c["draft"] for c in paid] == [0, 1, 2, 3, 4, 6, 8]
    assert all(p["step_us"] > f["step_us"] for p, f in zip(paid, free) if p["draft"] > 0)
    assert all(p["branch_us"] > 0 and "branch_us" not in f for p, f in zip(paid, free) if p["draft"] > 0)
    assert "second guess" in millrace.run(*ask, "--draft", heads / "eagle3").stdout.decode()


def test_bench_verifies_drafts_of_a_given_acceptance(millrace, tiny):
    run = lambda *args: millrace.json("bench", "-m", tiny, "-p", "0", "-n", "24", "-r", "1", "-b", "1,3", *args)["results"]
    for result in run("--draft-shape", "n=4,accept=0.755") + run("--draft-shape", "n=2,accept=1", "--draw") + run("--draft-shape", "n=4,accept=0", "--predict"):
        assert result["draft_tokens"] in (2, 4) and result["tokens_per_second"] > 0
    assert all(r["draft_tokens"] == 0 for r in run())
    trees = run("--draft-shape", "n=4,accept=0.6,width=3,second=0.4") + run("--draft-shape", "n=2,accept=0,width=2,second=1", "--draw")
    for result in trees + run("--draft-shape", "n=4,accept=0.6,width=2,second=0.4", "--predict"):
        assert result["draft_width"] in (2, 3) and result["draft_second"] > 0 and result["tokens_per_second"] > 0
    bad_trees = ("n=4,accept=0.5,width=5,second=0.4", "n=4,accept=0.5,width=2", "n=4,accept=0.5,width=2,second=2", "n=4,accept=0.5,width=0,second=0")
    for shape in ("4", "n=0,accept=0.5", "n=4,accept=1.5", "n=4,accept=nan", "n=4,accept=0.5,", "n=4", *bad_trees):
        assert "--draft-shape" in millrace.fails("bench", "-m", tiny, "--draft-shape", shape, code=2)


def test_bench_includes_the_passes_of_a_drafter(millrace, tiny):
    heads = ROOT / "tests/data/heads"
    ask = ("bench", "-p", "0", "-n", "12", "-d", "4", "-r", "1", "-b", "1,3", "-m")
    eagle3, shape = (heads / "eagle3_target", "--draft", heads / "eagle3"), ("--draft-shape", "n=3,accept=0.7")
    tree = ("--draft-shape", "n=3,accept=0.7,width=2,second=0.5")
    for case in ((tiny, "--draft", tiny, *shape), (*eagle3, *shape), (*eagle3, *shape, "--predict"), (*eagle3, *tree), (*eagle3, *tree, "--predict")):
        results = millrace.json(*ask, *case)["results"]
        assert len(results) == 2 and all(r["tokens_per_second"] > 0 for r in results), case
    assert all(len(r["turns"]) == 1 and r["ratio"] > 0 for r in millrace.json(*ask, *eagle3)["results"])
    assert "--predict" in millrace.fails("bench", "-m", tiny, "--draft", "lookup", "--predict", code=2)
