"""The Python package, from the wheel that MILLRACE_WHEEL names (scripts/wheel builds one)."""

import asyncio
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
import zipfile

import numpy as np
import pytest
from conftest import GOLDENS, ROOT

WHEEL = os.environ.get("MILLRACE_WHEEL")
pytestmark = pytest.mark.skipif(not WHEEL, reason="MILLRACE_WHEEL names no wheel")
CASE = GOLDENS / "llama_gqa"
LORAS = ROOT / "tests" / "data" / "loras"
# Beside glibc, the libraries that the wheel loads from its own folder where the system has none.
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
RUNTIME = {"libgcc_s.so.1", "libstdc++.so.6", "libz.so.1"}


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The unpacked wheel: it has neither dependencies nor scripts."""
    folder = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(WHEEL).extractall(folder)
    return folder


@pytest.fixture(scope="session")
def package(site, tmp_path_factory):
    os.environ["MILLRACE_CACHE"] = str(tmp_path_factory.mktemp("wheel-cache"))
    sys.path.insert(0, str(site))
    import millrace

    assert pathlib.Path(millrace.__file__).is_relative_to(site)
    return millrace


@pytest.fixture(scope="session")
def llm(package, tiny):
    with package.LLM(tiny, threads=1, exact=True, sequences=4) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def chat(package, tiny_chat):
    with package.LLM(tiny_chat, threads=1, sequences=8) as loaded:
        yield loaded


# The wheel.


def test_the_wheel_installs_into_an_environment_that_has_nothing_else(tmp_path, tiny):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    subprocess.run([sys.executable, "-m", "pip", "--python", bare / "bin" / "python", "install", "-q", "--no-index", WHEEL], check=True, capture_output=True)
    program = (
        "import millrace, sys\n"
        "assert 'numpy' not in sys.modules\n"
        f"llm = millrace.LLM({str(tiny)!r}, threads=1)\n"
        "assert len(llm.generate('hello', max_tokens=4, temperature=0, ignore_eos=True).tokens) == 4\n"
        "logits = llm.logits('hello')\n"
        "assert hasattr(logits, '__dlpack__')\n"
        "print(millrace.__version__)\n"
    )
    done = subprocess.run([bare / "bin" / "python", "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in (ROOT / "CMakeLists.txt").read_text()


def test_every_library_is_in_the_wheel_or_in_glibc(site):
    libraries = [path for path in site.rglob("*") if ".so" in path.name]
    assert len(libraries) > 5
    bundled = {path.name for path in libraries}
    for path in libraries:
        dynamic = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        assert needed <= GLIBC | RUNTIME | bundled, path
    assert RUNTIME <= {path.name for path in (site / "millrace" / "runtime").iterdir()}


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_the_wheel_imports_with_only_glibc_and_python(site, tmp_path):
    """In a root that holds the interpreter, its standard library, the libraries that these need, and the wheel."""
    prefix, version = pathlib.Path(sys.base_prefix), f"python{sys.version_info[0]}.{sys.version_info[1]}"
    interpreter = pathlib.Path(os.path.realpath(sys.executable))
    root = tmp_path / "root"
    standard = prefix / "lib" / version
    ignored = shutil.ignore_patterns("test", "__pycache__", "site-packages", "dist-packages", "config-*", "ensurepip", "idlelib", "lib2to3", "tkinter")
    shutil.copytree(standard, root / standard.relative_to("/"), ignore=ignored)
    wanted = [interpreter, *standard.glob("lib-dynload/_ctypes.*"), *standard.glob("lib-dynload/_struct.*")]
    for path in wanted[:1] + [pathlib.Path(line) for one in wanted for line in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", one], capture_output=True, text=True).stdout)]:
        to = root / path.relative_to("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    for name in GLIBC:
        for folder in ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"):
            if (pathlib.Path("/") / folder / name).exists():
                (root / folder).mkdir(parents=True, exist_ok=True)
                shutil.copy(pathlib.Path("/") / folder / name, root / folder / name)
    shutil.copytree(site, root / "site")
    assert not [path for path in root.rglob("libstdc++*") if not path.is_relative_to(root / "site")]
    program = "import sys; sys.path.insert(0, '/site'); import millrace; print(millrace.__version__)"
    done = subprocess.run([shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin"), root, interpreter, "-c", program], capture_output=True, text=True, env={"PYTHONHOME": str(prefix)}, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_stubs_name_what_the_module_has(package, site):
    import millrace._millrace as native

    stub = (site / "millrace" / "_millrace.pyi").read_text()
    assert (site / "millrace" / "py.typed").exists()
    for name in ("Model", "Request", "Server", "TreeSearch"):
        body = re.search(rf"^class {name}:\n((?:    .*\n|\n)+)", stub, re.M)[1]
        stubbed = set(re.findall(r"^    def (\w+)", body, re.M)) - {"__init__"}
        assert stubbed == {attribute for attribute in vars(getattr(native, name)) if not attribute.startswith("_")}


# Answers.


def test_generate_equals_the_program(llm, millrace, tiny):
    ours = millrace.json("run", "-m", tiny, "--exact", "--raw", "--temp", 0, "-n", 8, "--ignore-eos", "hello")
    output = llm.generate("hello", max_tokens=8, temperature=0, ignore_eos=True)
    assert output.tokens == ours["tokens"] and output.text == ours["text"]
    assert output.finish_reason == "length"
    assert output.prompt_tokens == len(llm.tokenizer.encode("hello"))
    same = llm.generate(np.array(llm.tokenizer.encode("hello")), max_tokens=8, temperature=0, ignore_eos=True)
    assert same.tokens == output.tokens


def test_batches_keep_their_order(llm):
    prompts = ["a", "b c", "hello", "a", "d", "e", "f"]  # more than `sequences`
    together = llm.generate(prompts, max_tokens=6, temperature=0, ignore_eos=True)
    assert [output.tokens for output in together] == [llm.generate(p, max_tokens=6, temperature=0, ignore_eos=True).tokens for p in prompts]
    assert llm.generate([]) == []


def test_choices_seeds_and_logprobs(llm):
    output = llm.generate("hello", n=3, seed=1, temperature=1.0, max_tokens=5, ignore_eos=True, logprobs=2)
    assert len(output.choices) == 3
    again = llm.generate("hello", n=3, seed=1, temperature=1.0, max_tokens=5, ignore_eos=True, logprobs=2)
    assert [c.tokens for c in again.choices] == [c.tokens for c in output.choices]
    row = output.logprobs[0]
    assert row.token == output.tokens[0] and len(row.top) == 2 and row.top[0][1] >= row.top[1][1]
    logits = llm.logits("hello")[-1].astype(np.float64)
    assert abs(logits[row.token] - np.log(np.exp(logits - logits.max()).sum()) - logits.max() - row.logprob) < 1e-3


def test_search_keeps_its_budget_and_follows_the_value(llm):
    found = llm.search("hello", 96, value=lambda text: -text.count("e"), segment_tokens=4, max_tokens=12, seed=1, temperature=1.0, ignore_eos=True)
    assert 0 < found.spent_tokens <= 96 and found.answers[0].finish_reason == "stop"
    assert [answer.value for answer in found.answers] == sorted((answer.value for answer in found.answers), reverse=True)
    assert all(answer.value == -answer.text.count("e") and len(answer.tokens) == 12 for answer in found.answers)
    by_logprob = llm.search("hello", 40, segment_tokens=4, max_tokens=8, seed=1)
    rows = llm.logits(llm.tokenizer.encode("hello") + by_logprob.answers[0].tokens)[len(llm.tokenizer.encode("hello")) - 1 : -1].astype(np.float64)
    chosen = [row[token] - np.log(np.exp(row - row.max()).sum()) - row.max() for row, token in zip(rows, by_logprob.answers[0].tokens)]
    assert abs(np.mean(chosen) - by_logprob.answers[0].value) < 1e-3
    with pytest.raises(ValueError):
        llm.search("hello", 0)


def test_stop_strings_end_an_answer(llm):
    whole = llm.generate("hello", max_tokens=12, temperature=0, ignore_eos=True).text
    stop = whole[3:5]
    output = llm.generate("hello", max_tokens=12, temperature=0, ignore_eos=True, stop=[stop])
    assert output.text == whole[: whole.index(stop)] and output.finish_reason == "stop"


def test_streams_and_cancellation(llm):
    whole = llm.generate("hello", max_tokens=8, temperature=0, ignore_eos=True)
    with pytest.raises(ValueError, match="at least 1"):
        llm.generate("hello", max_tokens=0)
    stream = llm.stream("hello", max_tokens=8, temperature=0, ignore_eos=True)
    assert "".join(delta.text for delta in stream) == whole.text
    assert stream.output.tokens == whole.tokens and stream.output.finish_reason == "length"
    with llm.stream("hello", temperature=0, ignore_eos=True) as endless:
        next(endless)
        endless.cancel()
        last = list(endless)
        assert last == [] or last[-1].finish_reason in ("cancelled", "length")
    with pytest.raises(ValueError, match="closed"):
        next(endless)


def test_schemas_and_other_forms(chat):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}
    answer = json.loads(chat.chat("hello", schema=schema, max_tokens=64, seed=3).text)
    assert 1 <= answer["n"] <= 9
    assert chat.generate("hello", choice=["yes", "no"], max_tokens=8, seed=1).text in ("yes", "no")
    assert re.fullmatch("[ab]{3}", chat.chat("hello", regex="[ab]{3}", max_tokens=8, seed=1).text)
    with pytest.raises(ValueError, match="one form"):
        chat.chat("hello", schema=schema, regex="a")


def test_chat_renders_the_template(chat):
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    rendered = chat.tokenizer.apply_chat_template(messages)
    assert rendered == "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    by_hand = chat.generate(rendered, max_tokens=6, temperature=0)
    assert chat.chat(messages, max_tokens=6, temperature=0).tokens == by_hand.tokens
    two = chat.chat([messages, "hello"], max_tokens=6, temperature=0)
    assert two[0].tokens == by_hand.tokens and len(two) == 2


def test_tool_calls_are_parsed(chat):
    tool = {"type": "function", "function": {"name": "roll", "parameters": {"type": "object", "properties": {"d": {"enum": [6, 20]}}, "required": ["d"], "additionalProperties": False}}}
    output = chat.chat("roll", tools=[tool], fields={"tool_choice": "required", "parallel_tool_calls": False}, max_tokens=128, seed=1)
    assert output.finish_reason == "tool_calls"
    assert output.tool_calls[0]["function"]["name"] == "roll"
    assert json.loads(output.tool_calls[0]["function"]["arguments"])["d"] in (6, 20)


def test_asyncio_runs_many_at_once(llm):
    prompts = ["a", "b c", "hello", "d", "e"]
    expected = [output.tokens for output in llm.generate(prompts, max_tokens=6, temperature=0, ignore_eos=True)]

    async def streamed(prompt):
        return [token async for delta in llm.astream(prompt, max_tokens=6, temperature=0, ignore_eos=True) for token in delta.tokens]

    async def main():
        assert await asyncio.gather(*map(streamed, prompts)) == expected
        whole = await asyncio.gather(*(llm.agenerate(prompt, max_tokens=6, temperature=0, ignore_eos=True) for prompt in prompts))
        assert [output.tokens for output in whole] == expected
        endless = asyncio.ensure_future(llm.agenerate("hello", ignore_eos=True))
        await asyncio.sleep(0)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        with pytest.raises(ValueError):
            await llm.agenerate("hello", temperature=99)

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    assert len(os.listdir("/proc/self/fd")) <= before


def test_other_threads_run_while_the_model_computes(chat):
    """A thread that only counts makes progress while generate() runs in this one."""
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    chat.generate("hello", max_tokens=200, temperature=0, ignore_eos=True)
    after = counted[0]
    done.set()
    thread.join()
    assert after - before > 1000


# Adapters.


@pytest.fixture(scope="session")
def adapted(package):
    """The golden model with a PEFT adapter."""
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    with package.LLM(CASE / "model.gguf", threads=1, exact=True, sequences=4, chat_template=template, lora={"one": LORAS / "llama"}) as loaded:
        yield loaded


def test_adapters_compute_pefts_logits(adapted):
    from safetensors.numpy import load_file

    expected = load_file(LORAS / "llama" / "expected.safetensors")
    logits = adapted.logits(expected["tokens"], lora="one")
    assert np.abs(logits - expected["logits"]).max() <= 1e-4 * np.abs(expected["logits"]).max()
    assert np.abs(adapted.logits(expected["tokens"]) - logits).max() > 0.01 * np.abs(logits).max()


def test_every_call_chooses_an_adapter(adapted):
    settings = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
    plain, one = (adapted.generate("hello", lora=lora, **settings).tokens for lora in (None, "one"))
    assert plain != one
    assert [output.tokens for output in adapted.generate(["hello", "hello"], lora="one", **settings)] == [one, one]
    assert adapted.chat("hello", lora="one", **settings).tokens == one
    said = [{"role": "user", "content": "hello"}]
    assert [token for delta in adapted.stream(said, lora="one", **settings) for token in delta.tokens] == one
    assert [token for delta in adapted.stream("hello", lora="one", **settings) for token in delta.tokens] == one
    assert not np.allclose(adapted.embed("hello", pooling="mean"), adapted.embed("hello", pooling="mean", lora="one"))
    assert adapted.search("hello", 16, lora="one", seed=1).answers

    async def main():
        both = await asyncio.gather(adapted.agenerate("hello", **settings), adapted.agenerate("hello", lora="one", **settings))
        assert [output.tokens for output in both] == [plain, one]
        assert (await adapted.achat("hello", lora="one", **settings)).tokens == one
        assert [token async for delta in adapted.astream("hello", lora="one", **settings) for token in delta.tokens] == one

    asyncio.run(main())


def test_adapters_come_and_go(adapted, package):
    settings = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
    one = adapted.generate("hello", lora="one", **settings).tokens
    assert adapted.loras == ["one"]
    adapted.load_lora("two", LORAS / "llama" / "adapter.gguf")
    assert adapted.loras == ["one", "two"] and adapted.generate("hello", lora="two", **settings).tokens == one
    with pytest.raises(ValueError, match="'two' is loaded already"):
        adapted.load_lora("two", LORAS / "llama_patterns")
    adapted.load_lora("two", LORAS / "llama_patterns", replace=True)
    assert adapted.generate("hello", lora="two", **settings).tokens != one
    running = adapted.stream("hello", lora="two", **settings)
    adapted.unload_lora("two")
    assert len([token for delta in running for token in delta.tokens]) == 8
    assert adapted.loras == ["one"]
    for call in (lambda: adapted.generate("hello", lora="two"), lambda: adapted.logits("hello", lora="two"), lambda: adapted.unload_lora("two")):
        with pytest.raises(ValueError, match="'two'"):
            call()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        adapted.load_lora("two", "nowhere")
    with pytest.raises(RuntimeError, match="gemma3"):
        adapted.load_lora("two", LORAS / "gemma3")
    assert adapted.loras == ["one"]
    with package.LLM(CASE / "model.gguf", threads=1, lora=[LORAS / "llama"]) as listed:
        assert listed.loras == ["llama"]
    with package.LLM(CASE / "model.gguf", threads=1) as without, pytest.raises(ValueError, match="without room for adapters"):
        without.load_lora("one", LORAS / "llama")


def test_the_server_has_adapters(package):
    with package.Server(CASE / "model.gguf", threads=1, name="tiny", lora={"one": LORAS / "llama"}) as server:
        with urllib.request.urlopen(f"{server.url}/models", timeout=60) as answer:
            assert {model["id"]: model.get("parent") for model in json.load(answer)["data"]} == {"tiny": None, "one": "tiny"}


# Vectors.


def test_logits_equal_those_of_transformers(llm):
    from safetensors.numpy import load_file

    expected = load_file(CASE / "expected.safetensors")
    tokens = expected["tokens"].ravel()
    logits = llm.logits(tokens)
    assert logits.shape == (len(tokens), llm.vocab_size) and logits.dtype == np.float32
    theirs = expected["logits"].reshape(logits.shape)
    assert np.abs(logits - theirs).max() <= 1e-4 * np.abs(theirs).max()
    assert np.array_equal(logits, llm.logits(tokens))  # nothing comes from the prefix cache


def test_logits_equal_the_programs(llm, millrace, tiny):
    tokens = [3 + i % 90 for i in range(100)]  # more than one chunk
    theirs = np.array(millrace.json("logits", "-m", tiny, "--exact", "--tokens", ",".join(map(str, tokens)))["logits"], np.float32)
    ours = llm.logits(tokens)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()


def test_hidden_states_and_embeddings(llm):
    tokens = llm.tokenizer.encode("hello there")
    states = llm.hidden_states(tokens)
    assert states.shape == (len(tokens), llm.hidden_size)
    mean = states.mean(axis=0, dtype=np.float64)
    assert np.allclose(llm.embed("hello there"), mean / np.linalg.norm(mean), atol=1e-5)
    last = states[-1] / np.linalg.norm(states[-1])
    assert np.allclose(llm.embed(tokens, pooling="last"), last, atol=1e-5)
    assert llm.embed(["a", "hello there"]).shape == (2, llm.hidden_size)


def test_dlpack_shares_memory(llm):
    native = llm._native.compute(0, [1, 2, 3])
    first = np.from_dlpack(native)
    assert np.shares_memory(first, np.from_dlpack(native))


# Errors, progress, the server.


@pytest.mark.parametrize("call, kind, message", [
    (lambda llm: llm.generate(""), ValueError, "empty"),
    (lambda llm: llm.generate([1 << 30]), ValueError, "vocabulary"),
    (lambda llm: llm.generate("a", temperature=-1), ValueError, "temperature"),
    (lambda llm: llm.generate("a", tempreature=1), TypeError, "tempreature"),
    (lambda llm: llm.generate("a", regex="("), ValueError, "regular expression"),
    (lambda llm: llm.logits([]), ValueError, "empty"),
    (lambda llm: llm.embed("a", pooling="max"), ValueError, "pooling"),
    (lambda llm: llm.generate([1] * 100000), ValueError, "context"),
])  # fmt: skip
def test_errors_are_exceptions_with_one_line(llm, call, kind, message):
    with pytest.raises(kind, match=message) as raised:
        call(llm)
    assert "\n" not in str(raised.value)


def test_loading_reports_progress_and_can_be_stopped(package, tiny, tmp_path):
    seen = []
    package.LLM(tiny, threads=1, on_progress=lambda done, total: seen.append((done, total))).close()
    assert seen[-1][0] == seen[-1][1] > 0

    def refuse(done, total):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        package.LLM(tiny, threads=1, on_progress=refuse)
    with pytest.raises(FileNotFoundError, match="absent.gguf"):
        package.LLM(tmp_path / "absent.gguf")
    with pytest.raises(ValueError, match="device"):
        package.LLM(tiny, device="toaster")


def test_a_closed_model_says_so(package, tiny):
    loaded = package.LLM(tiny, threads=1)
    stream = loaded.stream("hello", max_tokens=4, temperature=0, ignore_eos=True)
    loaded.close()
    assert len([token for delta in stream for token in delta.tokens]) == 4  # requests keep the model alive
    with pytest.raises(ValueError, match="closed"):
        loaded.generate("hello")


def test_the_server_answers(package, tiny_chat, chat):
    with package.Server(tiny_chat, threads=1, name="tiny", api_keys=["secret-key"]) as server:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0}
        request = urllib.request.Request(f"{server.url}/chat/completions", json.dumps(body).encode(), {"Authorization": "Bearer secret-key", "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = json.load(answer)["choices"][0]["message"]["content"]
    assert text == chat.chat("hello", max_tokens=6, temperature=0).text


def test_drafts_change_no_text(package, tmp_path):
    from tiny_model import write_tiny_model

    model = write_tiny_model(tmp_path / "repeats.gguf", chain={"a": "b", "b": "c", "c": "a"})
    for draft in ("lookup", "none", None, model):
        with package.LLM(model, threads=1, exact=True, sequences=2, draft=draft) as loaded:
            assert loaded.generate("abcabcabc", temperature=0, max_tokens=48).text == "abc" * 16
    other = write_tiny_model(tmp_path / "other.gguf", extra=["<|more|>"])
    with pytest.raises(Exception, match="other.gguf: cannot draft for this model"):
        package.LLM(model, threads=1, draft=other)
