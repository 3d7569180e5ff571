"""Low-rank adapters: --lora of the verbs, and the server's endpoints. The numbers are checked by lora_tests."""

import shutil

import pytest
from conftest import GOLDENS, ROOT
from serving import Server

LORAS = ROOT / "tests" / "data" / "loras"
TINY = GOLDENS / "llama_gqa" / "model.gguf"


def test_logits_use_the_adapter(millrace):
    tokens = "5,6,7,8"
    plain = millrace.json("logits", "-m", TINY, "--tokens", tokens)["logits"]
    adapted = millrace.json("logits", "-m", TINY, "--tokens", tokens, "--lora", LORAS / "llama")["logits"]
    gguf = millrace.json("logits", "-m", TINY, "--tokens", tokens, "--lora", f"x={LORAS / 'llama' / 'adapter.gguf'}")["logits"]
    assert adapted != plain
    assert adapted[-1] == pytest.approx(gguf[-1], rel=1e-3, abs=1e-3)


def test_a_bad_adapter_is_one_line(millrace, tmp_path):
    assert "adapter_config.json" in millrace.fails("logits", "-m", TINY, "--tokens", "5", "--lora", tmp_path)
    assert "given twice" in millrace.fails("logits", "-m", TINY, "--tokens", "5", "--lora", "a=x", "--lora", "a=y", code=2)
    line = millrace.fails("logits", "-m", TINY, "--tokens", "5", "--lora", LORAS / "gemma3")
    assert "gemma3" in line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What --lora-dir names, with a way out of it."""
    path = tmp_path_factory.mktemp("loras")
    shutil.copytree(LORAS / "llama_patterns", path / "patterns")
    shutil.copytree(LORAS / "gemma3", path / "other_model")
    (path / "out").symlink_to(LORAS / "llama")
    return path


@pytest.fixture(scope="module")
def adapted(folder):
    with Server(TINY, "--lora", f"one={LORAS / 'llama'}", "--lora-dir", folder, "--served-model-name", "tiny") as running:
        yield running


def complete(server, model):
    body = {"model": model, "prompt": "abcdefgh", "max_tokens": 12, "temperature": 0}
    status, _, answer = server.post("/v1/completions", body)
    return answer if status == 200 else status


def load(server, **body):
    return server.post("/v1/load_lora_adapter", body)[0]


def test_adapters_by_name(adapted):
    plain, one = complete(adapted, "tiny"), complete(adapted, "one")
    assert one["model"] == "one" and plain["model"] == "tiny"
    assert one["choices"][0]["text"] != plain["choices"][0]["text"]
    assert complete(adapted, "two") == 404
    models = {m["id"]: m for m in adapted.get("/v1/models")[2]["data"]}
    assert models["one"]["parent"] == "tiny" and "parent" not in models["tiny"]
    assert adapted.get("/v1/models/one")[2]["parent"] == "tiny"


def test_hot_load_and_unload(adapted):
    text = lambda model: complete(adapted, model)["choices"][0]["text"]
    unload = lambda name: adapted.post("/v1/unload_lora_adapter", {"lora_name": name})[0]
    before = text("one")
    status, _, answer = adapted.post("/v1/load_lora_adapter", {"lora_name": "two", "lora_path": "patterns"})
    assert status == 200 and b"added successfully" in answer
    assert text("two") != before and text("one") == before
    assert load(adapted, lora_name="two", lora_path="patterns") == 400
    assert load(adapted, lora_name="two", lora_path="patterns", load_inplace=True) == 200
    assert unload("two") == 200
    assert unload("two") == 404
    assert complete(adapted, "two") == 404


def test_paths_stay_below_the_folder(adapted):
    for path in ("../llama", str(LORAS / "llama"), "out", "patterns/../.."):
        assert load(adapted, lora_name="x", lora_path=path) == 403, path
    assert load(adapted, lora_name="x", lora_path="nowhere") == 404
    assert load(adapted, lora_name="x", lora_path="other_model") == 400
    assert load(adapted, lora_name="x") == 400
    assert load(adapted, lora_name="tiny", lora_path="patterns") == 400


def test_without_a_folder_nothing_is_loaded(server):
    status, _, answer = server.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "patterns"})
    assert status == 403 and "--lora-dir" in answer["error"]["message"]
