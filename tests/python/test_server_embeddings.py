"""Embedding models and cross-encoders behind the server: embeddings, rerank, score, and their errors."""

import base64
import math
import pathlib
import shutil
import struct

import pytest
from serving import Server

ENCODERS = pathlib.Path(__file__).parents[1] / "data" / "encoders"


@pytest.fixture(scope="module")
def embedder():
    server = Server(ENCODERS / "bert")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def ranker():
    server = Server(ENCODERS / "bert_cross")
    yield server
    server.stop()


def vectors(server, texts, **more):
    status, _, answer = server.post("/v1/embeddings", {"input": texts, **more})
    assert status == 200, answer
    return [one["embedding"] for one in answer["data"]]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(x * x for x in b))


def test_embeddings(embedder):
    status, _, answer = embedder.post("/v1/embeddings", {"input": ["the cat", "the dog sat on the mat", "the cat"]})
    assert status == 200 and [one["index"] for one in answer["data"]] == [0, 1, 2]
    first, second, again = [one["embedding"] for one in answer["data"]]
    assert len(first) == 32 and first != second
    assert all(math.isclose(x, y, abs_tol=1e-5) for x, y in zip(first, again))
    assert math.isclose(sum(x * x for x in first), 1, rel_tol=1e-4)
    assert answer["usage"] == {"prompt_tokens": 4 + 8 + 4, "total_tokens": 16}
    tokens = embedder.post("/tokenize", {"prompt": "the cat"})[2]["tokens"]
    assert tokens[0] == 2 and tokens[-1] == 3
    assert all(math.isclose(x, y, abs_tol=1e-5) for x, y in zip(vectors(embedder, [tokens])[0], first))


def test_forms_and_dimensions(embedder):
    whole = vectors(embedder, "the cat")[0]
    packed = vectors(embedder, "the cat", encoding_format="base64")[0]
    assert struct.unpack("<32f", base64.b64decode(packed)) == pytest.approx(whole, abs=1e-5)
    short = vectors(embedder, "the cat", dimensions=8)[0]
    length = math.sqrt(sum(x * x for x in whole[:8]))
    assert short == pytest.approx([x / length for x in whole[:8]], abs=1e-5)
    status, _, answer = embedder.post("/v1/embeddings", {"input": "a", "dimensions": 33})
    assert status == 400 and answer["error"]["param"] == "dimensions"


def test_a_long_text_is_refused_or_cut(embedder):
    long = "cat " * 200
    status, _, answer = embedder.post("/v1/embeddings", {"input": long})
    assert status == 400 and "128" in answer["error"]["message"] and answer["error"]["param"] == "input"
    status, _, answer = embedder.post("/api/embed", {"model": "bert", "input": long})
    assert status == 200 and len(answer["embeddings"][0]) == 32 and answer["prompt_eval_count"] == 128
    assert embedder.post("/api/embed", {"model": "bert", "input": long, "truncate": False})[0] == 400


@pytest.mark.parametrize("path, body", [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/completions", {"prompt": "hi"}),
    ("/v1/responses", {"input": "hi"}),
    ("/api/generate", {"model": "bert", "prompt": "hi"}),
])
def test_an_encoder_does_not_generate(embedder, path, body):
    status, _, answer = embedder.post(path, body)
    assert status == 400 and "embeddings" in str(answer), answer


def test_scores_of_embeddings_are_cosines(embedder):
    a, b, c = vectors(embedder, ["the sky", "blue sky", "a dog"])
    status, _, answer = embedder.post("/score", {"text_1": "the sky", "text_2": ["blue sky", "a dog"]})
    assert status == 200 and answer["object"] == "list"
    assert [one["score"] for one in answer["data"]] == pytest.approx([cosine(a, b), cosine(a, c)], abs=1e-4)


def test_rerank(ranker):
    documents = ["the sky is blue", {"text": "a cat sat on the mat"}, "dogs"]
    status, _, answer = ranker.post("/v1/rerank", {"query": "is the sky blue?", "documents": documents})
    assert status == 200, answer
    scores = {one["index"]: one["relevance_score"] for one in answer["results"]}
    assert sorted(scores) == [0, 1, 2] and all(0 < score < 1 for score in scores.values())
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert answer["usage"]["prompt_tokens"] > 20
    status, _, best = ranker.post("/rerank", {"query": "is the sky blue?", "documents": documents, "top_n": 2, "return_documents": True})
    assert [one["index"] for one in best["results"]] == list(scores)[:2]
    texts = ["the sky is blue", "a cat sat on the mat", "dogs"]
    assert all(one["document"] == {"text": texts[one["index"]]} for one in best["results"])
    status, _, pairs = ranker.post("/score", {"text_1": "is the sky blue?", "text_2": texts})
    assert [one["score"] for one in pairs["data"]] == pytest.approx([scores[i] for i in range(3)], abs=1e-5)
    status, _, pairs = ranker.post("/score", {"text_1": ["is the sky blue?"] * 2, "text_2": texts[1:]})
    assert [one["score"] for one in pairs["data"]] == pytest.approx([scores[1], scores[2]], abs=1e-5)


def test_scores_are_those_of_transformers(ranker):
    """sigmoid(logit) from transformers for "the cat" and "the dog is blue", with token types."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model = transformers.BertForSequenceClassification.from_pretrained(ENCODERS / "bert_cross").eval()
    first = ranker.post("/tokenize", {"prompt": "the cat"})[2]["tokens"]
    second = ranker.post("/tokenize", {"prompt": "the dog is blue"})[2]["tokens"][1:]
    types = [0] * len(first) + [1] * len(second)
    with torch.no_grad():
        logit = model(torch.tensor([first + second]), token_type_ids=torch.tensor([types])).logits[0, 0].item()
    status, _, answer = ranker.post("/score", {"text_1": "the cat", "text_2": "the dog is blue"})
    assert answer["data"][0]["score"] == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-4)


def test_errors(ranker, embedder, server):
    status, _, answer = ranker.post("/v1/embeddings", {"input": "a"})
    assert status == 400 and "rerank" in answer["error"]["message"]
    for body in ({"documents": ["a"]}, {"query": "a", "documents": []}, {"query": "a", "documents": "b"}, {"query": "a", "documents": ["b"], "top_n": 0}):
        assert ranker.post("/v1/rerank", body)[0] == 400
    status, _, answer = ranker.post("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]})
    assert status == 400 and answer["error"]["param"] == "text_2"
    status, _, answer = ranker.post("/score", {"text_1": "a", "text_2": "cat " * 200})
    assert status == 400 and "128" in answer["error"]["message"]
    assert ranker.post("/score", {"text_1": "a", "text_2": "cat " * 200, "truncate_prompt_tokens": -1})[0] == 200
    status, _, answer = server.post("/v1/rerank", {"query": "a", "documents": ["b"]})
    assert status == 400 and answer["error"]["param"] == "model"


def test_raw_logits_if_the_config_says_so(tmp_path, ranker):
    folder = tmp_path / "raw"
    shutil.copytree(ENCODERS / "bert_cross", folder)
    config = (folder / "config.json").read_text().rstrip()[:-1]
    (folder / "config.json").write_text(config + ', "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}')
    other = Server(folder)
    try:
        body = {"text_1": "the cat", "text_2": "the dog"}
        raw = other.post("/score", body)[2]["data"][0]["score"]
        assert ranker.post("/score", body)[2]["data"][0]["score"] == pytest.approx(1 / (1 + math.exp(-raw)), abs=1e-5)
    finally:
        other.stop()
