"""Low-rank adapters: --lora of the verbs, and the server's endpoints, also with several models. The numbers are checked by
lora_tests."""

import shutil

import pytest
from conftest import GOLDENS, ROOT
from serving import Server

LORAS = ROOT / "tests" / "data" / "loras"
TINY = GOLDENS / "llama_gqa" / "model.gguf"


@pytest.mark.parametrize("model, lora", [("llama_gqa", "llama"), ("qwen3_moe", "qwen3_moe_experts"), ("mixtral", "mixtral_each")])
def test_logits_use_the_adapter(millrace, model, lora):
    tokens, model, lora = "5,6,7,8", GOLDENS / model / "model.gguf", LORAS / lora
    plain = millrace.json("logits", "-m", model, "--tokens", tokens)["logits"]
    adapted = millrace.json("logits", "-m", model, "--tokens", tokens, "--lora", lora)["logits"]
    gguf = millrace.json("logits", "-m", model, "--tokens", tokens, "--lora", f"x={lora / 'adapter.gguf'}")["logits"]
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


SMALL = ("--kv-tokens", 2048, "--parallel", 2)


@pytest.fixture
def two_models(tmp_path):
    """Two models that do not fit each other's adapters."""
    models = tmp_path / "models"
    models.mkdir()
    (models / "one.gguf").symlink_to(TINY)
    (models / "two.gguf").symlink_to(GOLDENS / "qwen3" / "model.gguf")
    return models


def text_of(server, model):
    return complete(server, model)["choices"][0]["text"]


def listed(server):
    return {model["id"]: model for model in server.get("/v1/models")[2]["data"]}


def test_adapters_of_several_models(millrace, two_models):
    loras = ("--lora", f"one:a={LORAS / 'llama'}", "--lora", f"one:{LORAS / 'llama_patterns'}", "--lora", f"two:q={LORAS / 'qwen3'}")
    expected = {}
    for model, lora in ((TINY, "llama"), (TINY, "llama_patterns"), (GOLDENS / "qwen3" / "model.gguf", "qwen3")):
        expected[lora] = millrace.json("run", "-m", model, "--raw", "--temp", 0, "-n", 12, "--lora", LORAS / lora, "abcdefgh")["text"]
    with Server(two_models, *SMALL, *loras) as server:
        before = listed(server)
        assert {name: model.get("parent") for name, model in before.items()} == {"one": None, "two": None, "a": "one", "llama_patterns": "one", "q": "two"}
        assert before["q"]["state"] == "unloaded" and "bytes" not in before["q"]
        assert text_of(server, "q") == expected["qwen3"]  # its name loads its model
        assert listed(server)["q"]["bytes"] > 0 and listed(server)["a"]["state"] == "unloaded"
        assert server.get("/v1/models/q")[2]["parent"] == "two"
        assert text_of(server, "a") == expected["llama"] and text_of(server, "llama_patterns") == expected["llama_patterns"]
        assert text_of(server, "one") not in expected.values()
        made = server.post("/api/generate", {"model": "a:latest", "prompt": "abcdefgh", "raw": True, "stream": False, "options": {"num_predict": 12, "temperature": 0}})[2]
        assert made["response"] == expected["llama"]
        assert complete(server, "b") == 404


def test_an_adapter_comes_back_with_its_model(two_models, tmp_path):
    loras = tmp_path / "loras"
    loras.mkdir()
    shutil.copytree(LORAS / "llama_patterns", loras / "patterns")
    shutil.copytree(LORAS / "llama", loras / "lost")
    shutil.copytree(LORAS / "llama", loras / "given")
    with Server(two_models, *SMALL, "--lora-dir", loras) as server:
        complete(server, "one"), complete(server, "two")
        largest = max(listed(server)[name]["bytes"] for name in ("one", "two"))
    with Server(two_models, *SMALL, "--models-memory", int(largest * 1.2), "--lora-dir", loras, "--lora", f"one:a={LORAS / 'llama'}", "--lora", f"one:given={loras / 'given'}") as server:
        body = {"lora_name": "b", "lora_path": "patterns"}
        status, _, answer = server.post("/v1/load_lora_adapter", body)
        assert status == 400 and answer["error"]["param"] == "model" and "several models" in answer["error"]["message"]
        assert load(server, **body, model="nothing") == 404
        assert load(server, **body, model="a") == 400, "an adapter is no base"
        assert load(server, **body, model="two") == 400, "of other shapes"
        assert load(server, **body, model="one") == 200
        assert load(server, **body, model="one") == 400
        assert load(server, **body, model="one", load_inplace=True) == 200
        assert load(server, lora_name="a", lora_path="patterns", model="two", load_inplace=True) == 400, "an adapter of another model"
        assert load(server, lora_name="two", lora_path="patterns", model="one") == 400, "the name of a model"
        assert load(server, lora_name="gone", lora_path="lost", model="one") == 200
        texts = {name: text_of(server, name) for name in ("one", "a", "b", "gone")}
        assert len(set(texts.values())) == 3 and texts["gone"] == texts["a"]
        shutil.rmtree(loras / "lost")
        complete(server, "two")
        assert listed(server)["one"]["state"] == listed(server)["b"]["state"] == "unloaded"
        assert {name: text_of(server, name) for name in ("b", "one", "a")} == {name: texts[name] for name in ("b", "one", "a")}
        assert server.events("adapter_lost")[0]["adapter"] == "gone" and complete(server, "gone") == 404
        complete(server, "two")
        assert server.post("/v1/unload_lora_adapter", {"lora_name": "b"})[0] == 200, "of a model that is not loaded"
        assert server.post("/v1/unload_lora_adapter", {"lora_name": "b"})[0] == 404
        assert server.post("/v1/unload_lora_adapter", {"lora_name": "given"})[0] == 200
        shutil.rmtree(loras / "given")  # of the command line, but no longer wanted
        assert complete(server, "b") == 404 and text_of(server, "a") == texts["a"]
        assert set(listed(server)) == {"one", "two", "a"}


def test_a_bad_adapter_fails_its_model_only(two_models):
    with Server(two_models, *SMALL, "--lora", f"one:a={LORAS / 'qwen3'}") as server:
        status, _, answer = server.post("/v1/completions", {"model": "a", "prompt": "x", "max_tokens": 1})
        assert status == 503 and "qwen3" in answer["error"]["message"]
        assert isinstance(complete(server, "two"), dict)


@pytest.mark.parametrize("loras, message", [
    (["a=x"], "say which one it changes"),
    (["three:a=x"], "they are one, two"),
    (["one:a=x", "two:a=y"], "given twice"),
    (["one:two=x"], "is the name of a model"),
    (["one:"], "expected PATH or NAME=PATH"),
])  # fmt: skip
def test_several_models_need_clear_adapters(millrace, two_models, loras, message):
    assert message in millrace.fails("serve", "-m", two_models, *[part for lora in loras for part in ("--lora", lora)], code=2)
