"""The command line as the README documents it: what each verb prints and keeps."""

import json
import math
import os
import pathlib
import pty
import resource
import select
import shutil
import signal
import subprocess
import time

import pytest

from conftest import BUILD, GOLDENS, Millrace
from tiny_model import write_tiny_model

VERBS = ["run", "chat", "serve", "load", "bench", "tune", "calibrate", "explain", "inspect", "logits", "tokenize", "detokenize", "template", "perplexity", "embed", "imatrix", "convert", "quantize", "models", "pull", "rm", "ps", "doctor"]
TOKENS = "1,5,9,14,30,7,22"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(millrace, verb):
    done = millrace.run(verb, "--help")
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert len(lines) >= 4 and max(map(len, lines)) <= 80


def test_options_that_repeat_leave_the_prompt_alone(millrace, tiny):
    assert len(millrace.json("run", "-m", tiny, "--raw", "-n", "2", "--ignore-eos", "--stop", "@@", "--logit-bias", "5:1", "abc")["tokens"]) == 2


def test_context_binds_to_the_token(millrace, tiny):
    answer = millrace.json("run", "-m", tiny, "--raw", "--ctx", "10", "--temp", "0", "--ignore-eos", "abc")
    assert answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"] == 10
    assert "maximum context length is 10" in millrace.fails("run", "-m", tiny, "--raw", "--ctx", "10", "abcdefghijkl", code=2)


def test_more_threads_than_cpus_are_limited(millrace, tiny):
    done = millrace.run("run", "-m", tiny, "--raw", "abc", "-n", "2", "--threads", "1024")
    assert done.returncode == 0 and b"--threads 1024" in done.stderr


def test_run_json_has_the_promised_fields(millrace, tiny):
    answer = millrace.json("run", "-m", tiny, "--raw", "abc", "-n", "12", "--temp", "0", "--ignore-eos")
    assert len(answer["tokens"]) == 12
    assert answer["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["usage"]["prompt_tokens"] == len(millrace.json("tokenize", "-m", tiny, "abc")["ids"])
    assert answer["timings"]["load_ms"] > 0 and answer["timings"]["ttft_ms"] > 0 and answer["timings"]["tokens_per_second"] > 0
    assert answer["text"] == millrace.json("detokenize", "-m", tiny, "--tokens", ",".join(map(str, answer["tokens"])))["text"]


def test_same_seed_same_text(millrace, tiny):
    ask = ["run", "-m", tiny, "--raw", "abc", "-n", "24", "--temp", "1.5", "--ignore-eos"]
    first = millrace.json(*ask, "--seed", "7")["tokens"]
    assert millrace.json(*ask, "--seed", "7")["tokens"] == first
    assert millrace.json(*ask, "--seed", "8")["tokens"] != first


def test_stop_string_ends_the_text_before_it(millrace, tiny):
    ask = ["run", "-m", tiny, "--raw", "abc", "-n", "40", "--temp", "0", "--ignore-eos"]
    text = millrace.json(*ask)["text"]
    stop = text[10:13]
    stopped = millrace.json(*ask, "--stop", stop)
    assert stopped["text"] == text[: text.index(stop)]
    assert stopped["finish_reason"] == "stop"


def test_logits_agree_between_chunks_threads_and_paths(millrace, tiny):
    exact = millrace.json("logits", "-m", tiny, "--tokens", TOKENS, "--exact")
    assert exact["tokens"] == [int(t) for t in TOKENS.split(",")]
    flat = [x for row in exact["logits"] for x in row]
    scale = max(map(abs, flat))
    for extra, tolerance in [(["--exact", "--chunk", "2"], 1e-5), (["--exact", "--threads", "1"], 1e-5), ([], 2e-2), (["--isa", "scalar"], 2e-2)]:
        other = [x for row in millrace.json("logits", "-m", tiny, "--tokens", TOKENS, *extra)["logits"] for x in row]
        assert max(abs(a - b) for a, b in zip(flat, other)) <= tolerance * scale, extra


def test_tokenize_and_back(millrace, tiny, tmp_path):
    found = millrace.json("tokenize", "-m", tiny, "--no-bos", "abc")
    assert len(found["ids"]) == len(found["pieces"]) == 3 and "".join(found["pieces"]) == "abc"
    assert millrace.json("tokenize", "-m", tiny, "--no-bos", "") == {"ids": [], "pieces": []}
    (tmp_path / "text").write_bytes(b"abc")
    assert millrace.json("tokenize", "-m", tiny, "--no-bos", "-f", tmp_path / "text")["ids"] == found["ids"]
    assert millrace.json("tokenize", "-m", tiny, "--no-bos", stdin=b"abc")["ids"] == found["ids"]


def test_template_renders_a_file(millrace, tmp_path):
    (tmp_path / "t.jinja").write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
    context = {"messages": [{"role": "user", "content": "é?"}], "add_generation_prompt": True}
    done = millrace.run("template", "--file", tmp_path / "t.jinja", "--input", "-", stdin=json.dumps(context).encode())
    assert done.stdout.decode() == "<user>é?<assistant>"
    (tmp_path / "bad.jinja").write_text("{% for %}")
    millrace.fails("template", "--file", tmp_path / "bad.jinja", "--input", "-", stdin=b"{}")
    millrace.fails("template", "--file", tmp_path / "t.jinja", "--input", "-", stdin=b"[1]")


def test_perplexity_equals_the_logits_own(millrace, tiny, tmp_path):
    text = "abcdefgh" * 30
    (tmp_path / "text").write_text(text)
    measured = millrace.json("perplexity", "-m", tiny, "-f", tmp_path / "text", "--ctx", "32", "--chunks", "2", "--exact")
    ids = millrace.json("tokenize", "-m", tiny, text)["ids"]
    begin = millrace.json("tokenize", "-m", tiny, "")["ids"][:1]
    total, count = 0.0, 0
    for window in (ids[:32], ids[32:64]):
        window[: len(begin)] = begin
        rows = millrace.json("logits", "-m", tiny, "--tokens", ",".join(map(str, window)), "--exact")["logits"]
        for position in range(16, 31):
            row = rows[position]
            top = max(row)
            total += math.log(sum(math.exp(x - top) for x in row)) + top - row[window[position + 1]]
            count += 1
    assert measured["tokens"] == count and measured["ctx"] == 32
    assert measured["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)


def test_divergence_from_saved_logits(millrace, tiny, tmp_path):
    (tmp_path / "text").write_text("abcdefgh" * 30)
    text = ["-f", tmp_path / "text", "--ctx", "32"]
    measure = ["perplexity", "-m", tiny, *text]
    saved = tmp_path / "exact.logits"
    plain = millrace.json(*measure, "--exact", "--chunks", "3", "--save-logits", saved)
    assert "kl" not in plain and saved.stat().st_size > 0
    beside = millrace.json(*measure, "--chunks", "3", "--kl")["kl"]
    stored = millrace.json(*measure, "--chunks", "3", "--kl", saved)["kl"]
    assert stored["tokens"] == beside["tokens"] == 3 * 16
    assert stored["mean"] == pytest.approx(beside["mean"], rel=0.01, abs=1e-7)
    assert millrace.json(*measure, "--chunks", "3", "--kl", saved, "--exact")["kl"]["mean"] < 1e-7

    assert "another text" in millrace.fails(*measure, "--chunks", "2", "--kl", saved, code=2)
    other = write_tiny_model(tmp_path / "other.gguf", extra=["<|more|>"])
    assert "tokens" in millrace.fails("perplexity", "-m", other, *text, "--chunks", "3", "--kl", saved, code=2)
    saved.write_bytes(saved.read_bytes()[:-7])
    assert "cut off" in millrace.fails(*measure, "--chunks", "3", "--kl", saved)
    saved.write_bytes(b"text")
    assert "--save-logits" in millrace.fails(*measure, "--chunks", "3", "--kl", saved)
    assert "leave one" in millrace.fails(*measure, "--exact", "--kl", code=2)
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"])
def test_quantize_is_read_back_by_gguf(millrace, kind, tmp_path):
    gguf = pytest.importorskip("gguf")
    np = pytest.importorskip("numpy")
    source, out = GOLDENS / "llama_gqa" / "model.gguf", tmp_path / "out.gguf"
    summary = millrace.json("quantize", source, out, "--type", kind)
    before, after = gguf.GGUFReader(source), gguf.GGUFReader(out)
    assert [t.name for t in before.tensors] == [t.name for t in after.tensors] and summary["tensors"] == len(after.tensors)
    narrower = 0
    for a, b in zip(before.tensors, after.tensors):
        want = gguf.quants.dequantize(a.data, a.tensor_type).astype(np.float64)
        got = gguf.quants.dequantize(b.data, b.tensor_type).astype(np.float64)
        assert np.linalg.norm(got - want) <= 0.12 * np.linalg.norm(want), a.name
        narrower += b.n_bytes < a.n_bytes
    assert narrower > 0
    tokens = millrace.json("logits", "-m", out, "--tokens", TOKENS)["logits"]
    assert len(tokens) == 7 and all(math.isfinite(x) for row in tokens for x in row)
    assert "--type" in millrace.fails("quantize", source, out, "--type", "Q9", code=2)


def test_what_was_calibrated_is_kept_and_changes_no_text(millrace, tiny, tmp_path):
    ask = ("run", "-m", tiny, "--raw", "abc", "-n", "12", "--temp", "0", "--ignore-eos", "--exact")
    before = millrace.json(*ask)["tokens"]
    report = millrace.json("calibrate", "-m", tiny, "--exact")
    assert report["calibrated_layers"] == report["layers"] == len(report["ranges"])
    assert all(len(layer) == report["heads"] and all(head["least"] <= head["most"] for head in layer) for layer in report["ranges"])
    assert json.loads(open(report["file"]).read())["tokens"] == report["tokens"] > 10
    assert millrace.json(*ask)["tokens"] == before
    (tmp_path / "text").write_text("abc def " * 3)
    assert millrace.json("calibrate", "-m", tiny, "-f", tmp_path / "text", "--tokens", "9")["tokens"] == 9
    assert "kept in" in millrace.run("calibrate", "-m", tiny).stdout.decode()
    (tmp_path / "empty").write_text("")
    assert millrace.run("calibrate", "-m", tiny, "-f", tmp_path / "empty").returncode in (0, 2)  # 2 if the tokenizer adds no token of its own
    assert "no-such" in millrace.fails("calibrate", "-m", tiny, "-f", tmp_path / "no-such")


def test_what_was_tuned_is_kept_and_explained(millrace, tiny):
    untuned = millrace.json("explain", "-m", tiny, "-t", "1", "-b", "1")["choices"]
    assert all(candidate["measured_us"] is None for choice in untuned for candidate in choice["candidates"])
    report = millrace.json("tune", "-m", tiny, "-t", "1", "-b", "1", "--chunk", "64", "--ctx", "64")
    if report["busy"]:
        pytest.skip("the machine is busy")
    assert report["problems"] > 0 and report["seconds"] < 60 and {"single streams", "prompts"} == set(report["steps"])
    for choice in millrace.json("explain", "-m", tiny, "-t", "1", "-b", "1", "-d", "64")["choices"]:
        measured = [candidate["measured_us"] for candidate in choice["candidates"] if candidate["measured_us"] is not None]
        kept = report["steps"]["single streams" if choice["problem"]["m"] == 1 else "prompts"]["kept"]
        assert choice["problem"]["m"] > 64 or not kept or choice["candidates"][0]["measured_us"] == min(measured), choice
    ops = millrace.json("bench", "-m", tiny, "-p", "0", "-n", "4", "-r", "1")["results"][0]["ops"]
    assert {"linear", "attention", "norm"} <= {op["op"] for op in ops} and all(op["calls"] > 0 for op in ops)


def test_what_could_not_be_kept_is_not_measured(millrace, tiny, tmp_path):
    (tmp_path / "file").write_text("")
    without_cache = type(millrace)(tmp_path / "file" / "cache")
    tuned = without_cache.run("tune", "-m", "synthetic:llama-3-8b:q8_0", timeout=60)  # would take minutes
    assert tuned.returncode == 1 and b"millrace: cannot write" in tuned.stderr.splitlines()[-1]
    assert "Not a directory" in without_cache.fails("calibrate", "-m", tiny)


def test_bench_explain_inspect_models_doctor_speak_json(millrace, tiny):
    bench = millrace.json("bench", "-m", tiny, "-p", "16", "-n", "4", "-b", "1,2", "-d", "0,8", "-r", "1")
    assert {(r["test"], r["batch"], r["depth"]) for r in bench["results"]} == {(t, b, d) for t in ("pp16", "tg4") for b in (1, 2) for d in (0, 8)}
    assert all(r["tokens_per_second"] > 0 and r["percent_of_roof"] > 0 and r["samples"] for r in bench["results"])
    assert bench["left_out"] == []
    assert millrace.json("bench", "-m", tiny, "-p", "0", "-n", "4", "-b", "2", "-r", "1", "--draw")["results"][0]["tokens_per_second"] > 0
    predicted = millrace.json("bench", "-m", tiny, "-p", "16", "-n", "4", "--predict")["results"]
    assert len(predicted) == 2 and all(r["tokens_per_second"] > 0 and r["samples"] == [] for r in predicted)
    choices = millrace.json("explain", "-m", tiny, "-b", "1,4")["choices"]
    assert {c["problem"]["op"] for c in choices} == {"linear", "attention"}
    every = millrace.json("explain", "-m", tiny, "-b", "1,4", "--all")["choices"]
    assert {"linear", "attention", "norm", "rope_angles", "embedding"} <= {c["problem"]["op"] for c in every}
    for choice in every:
        assert choice["chosen"] == choice["candidates"][0]["kernel"]
        assert choice["candidates"][0]["estimate_us"] > 0
    inspected = millrace.json("inspect", tiny)
    assert millrace.json("inspect", "-m", tiny)["model"] == inspected["model"]
    assert inspected["supported"] and inspected["memory"]["total"] > 0 and inspected["tensors"]
    assert inspected["predicted"]["ttft_ms"] > 0 and inspected["predicted"]["tokens_per_second"] > 0
    assert any(entry["default"] for entry in millrace.json("models")["catalogue"])
    doctor = millrace.json("doctor")
    assert doctor["hardware"]["ceilings"]["read_gbs"] > 0 and "llama" in doctor["architectures"]


def test_forced_kernels_and_instruction_sets_are_used(millrace, tiny):
    candidates = {c["kernel"] for choice in millrace.json("explain", "-m", tiny)["choices"] if choice["problem"]["op"] == "linear" for c in choice["candidates"]}
    for kernel in candidates:
        forced = millrace.json("explain", "-m", tiny, "--kernel", f"linear={kernel}")["choices"]
        assert any(c["chosen"] == kernel for c in forced if c["problem"]["op"] == "linear"), kernel
    for level in millrace.json("doctor")["isa_levels"]:
        done = millrace.run("logits", "-m", tiny, "--tokens", "1,2", "--isa", level, "--json")
        assert done.returncode == 0 or b"does not have it" in done.stderr, done.stderr


def test_chat_keeps_the_conversation_and_obeys_commands(millrace, tmp_path):
    model = chat_model(tmp_path)
    script = f"/help\nhello\n/save {tmp_path}/talk.json\n/reset\n/nonsense\n/quit\n"
    done = millrace.run("chat", "-m", model, "-n", "5", "--temp", "0", stdin=script.encode())
    assert done.returncode == 0, done.stderr
    assert b"/reset" in done.stdout and b"unknown command" in done.stderr
    roles = [m["role"] for m in json.loads((tmp_path / "talk.json").read_text())]
    assert roles == ["user", "assistant"]
    assert "name of a file" in millrace.fails("chat", "-m", model, stdin=b"/save\n", code=2)
    assert "name of a file" in millrace.fails("chat", "-m", model, stdin=b"/save   \n", code=2)
    assert b"/reset" in millrace.run("chat", "-m", model, stdin=b"/help \r\n").stdout


def wait_for_prompt(process, terminal):
    shown = b""
    while not shown.endswith(b"\n> "):
        assert select.select([terminal], [], [], 30)[0], shown
        shown += os.read(terminal, 4096)
    stat = pathlib.Path(f"/proc/{process.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "S":  # it waits for input: a signal before that would be seen with the next key only
        time.sleep(0.01)
    time.sleep(0.1)


def test_chat_on_a_terminal_prompts_and_ends_at_sigterm(millrace, tmp_path):
    model = chat_model(tmp_path)
    ours, theirs = pty.openpty()
    process = subprocess.Popen([BUILD / "millrace", "chat", "-m", model], stdin=theirs, stdout=theirs, stderr=theirs,
                               env={**millrace.env, "TERM": "xterm", "NO_COLOR": "1"}, start_new_session=True)
    os.close(theirs)
    wait_for_prompt(process, ours)
    process.send_signal(signal.SIGINT)  # drops the current line only
    wait_for_prompt(process, ours)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    os.close(ours)


def test_a_model_that_is_cut_short_while_in_use_is_one_line(millrace, tmp_path):
    model = chat_model(tmp_path)
    ask = [BUILD / "millrace", "chat", "-m", model, "-n", "5", "--temp", "0", "--ignore-eos"]
    process = subprocess.Popen(ask, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=millrace.env)
    process.stdin.write(b"/help\nhello\n")
    process.stdin.flush()
    while b"/quit" not in process.stdout.readline():
        pass
    assert process.stdout.readline()  # an answer: loading is done
    model.write_bytes(b"")
    _, errors = process.communicate(b"once more\n", timeout=30)
    assert process.returncode == 1 and errors.decode().splitlines() == ["millrace: a model file was made shorter while it was in use"]


def test_a_limit_on_files_leaves_nothing_behind(millrace, tiny, tmp_path):
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    ask = [BUILD / "millrace", "quantize", tiny, tmp_path / "out.gguf", "--type", "F16"]
    done = subprocess.run(ask, capture_output=True, env=millrace.env, preexec_fn=limit)
    assert done.returncode == 1 and len(done.stderr.decode().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def chat_model(tmp_path):
    """The tiny model with a chat template in it."""
    gguf = pytest.importorskip("gguf")
    source = gguf.GGUFReader(GOLDENS / "llama_gqa" / "model.gguf")
    writer = gguf.GGUFWriter(tmp_path / "chat.gguf", "llama")
    for name, field in source.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind, *rest = field.types
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents())
        else:
            writer.add_key_value(name, field.contents(), kind)
    writer.add_chat_template("{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}")
    for tensor in source.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "chat.gguf"


def test_ctrl_c_stops_cleanly(millrace):
    ask = [BUILD / "millrace", "bench", "-m", "synthetic:smollm2-135m:q8_0", "-p", "400", "-n", "0", "-r", "1000"]
    process = subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=millrace.env)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT  # a shell ends its loop
    assert errors.decode().strip().splitlines()[-1].startswith("millrace: ")


def test_ctrl_c_keeps_what_there_is_of_an_answer(millrace):
    ask = [BUILD / "millrace", "run", "-v", "-m", "synthetic:smollm2-135m:q8_0", "--tokens", "1,2,3", "-n", "7000", "--ignore-eos", "--json"]
    process = subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=millrace.env,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    while b"sampling: " not in (line := process.stderr.readline()):  # the last line before it generates
        assert line, "it ended"
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    answer = json.loads(out)
    assert answer["finish_reason"] == "interrupted"
    assert 0 < len(answer["tokens"]) < 7000


def test_inspect_says_that_a_model_does_not_fit(millrace):
    small = ["synthetic:deepseek-v3", "--cpu-memory", "20GB"]  # too little even without the experts
    done = millrace.run("inspect", *small)
    assert done.returncode == 0 and b"does not fit" in done.stdout and b"expected speed" not in done.stdout
    memory = millrace.json("inspect", *small)["memory"]
    assert not memory["fits"] and memory["total"] > memory["available"]
    assert millrace.json("inspect", GOLDENS / "llama_gqa")["memory"]["fits"]


def test_doctor_measures_again(tmp_path):
    """A kept measurement stands until --again replaces it. A busy machine keeps no new one."""
    millrace = Millrace(tmp_path)

    def doctor(*options):
        done = millrace.run("doctor", "-t", "1", *options)
        assert done.returncode == 0
        if b"the machine is busy" in done.stderr:
            pytest.skip("the machine is busy")

    doctor()
    [kept] = (tmp_path / "hardware").glob("*.json")
    wrong = json.loads(kept.read_text())
    wrong["ceilings"]["int8_gops"] = 3e6
    kept.write_text(json.dumps(wrong))
    doctor()
    assert json.loads(kept.read_text())["ceilings"]["int8_gops"] == 3e6
    doctor("--again")
    assert json.loads(kept.read_text())["ceilings"]["int8_gops"] < 1e6


def test_embed_prints_vectors(millrace, tmp_path):
    bert = GOLDENS.parent / "encoders" / "bert"
    lines = millrace.run("embed", "-m", bert, "the cat", "the dog sat on the mat").stdout.decode().splitlines()
    vectors = [[float(x) for x in line.split()] for line in lines]
    assert [len(vector) for vector in vectors] == [32, 32] and vectors[0] != vectors[1]
    assert sum(x * x for x in vectors[0]) == pytest.approx(1, rel=1e-3)  # as its modules.json says
    (tmp_path / "texts").write_text("the dog sat on the mat\n\nthe cat\r\n")
    done = millrace.run("embed", "-m", bert, "-f", tmp_path / "texts", "--json", "--dimensions", "8")
    objects = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert [one["text"] for one in objects] == ["the dog sat on the mat", "the cat"]
    length = sum(x * x for x in vectors[0][:8]) ** 0.5
    assert objects[1]["embedding"] == pytest.approx([x / length for x in vectors[0][:8]], abs=1e-4)
    assert "33" in millrace.fails("embed", "-m", bert, "a", "--dimensions", "33", code=2)
    assert "rerank" in millrace.fails("embed", "-m", GOLDENS.parent / "encoders" / "bert_cross", "a", code=2)


def test_embed_puts_prompts_before_texts(millrace, tmp_path):
    shutil.copytree(GOLDENS.parent / "encoders" / "bert", tmp_path / "model")
    config = {"prompts": {"query": "the dog ", "document": ""}, "default_prompt_name": None}
    (tmp_path / "model" / "config_sentence_transformers.json").write_text(json.dumps(config))
    vector = lambda *words: millrace.run("embed", "-m", tmp_path / "model", *words).stdout
    assert vector("--prompt", "query", "sat") == vector("the dog sat") != vector("sat")
    assert vector("--prompt", "document", "sat") == vector("sat")
    assert "query" in millrace.fails("embed", "-m", tmp_path / "model", "--prompt", "nosuch", "a", code=2)


def test_quantize_collects_importance_from_a_text(millrace, tiny, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abc def ghi jkl mno pqr stu vwx yz " * 40)
    made = millrace.json("imatrix", "-m", tiny, "-f", text, "-o", tmp_path / "imatrix.gguf", "--ctx", "32", "--chunks", "3")
    assert made["windows"] == 3 and made["tokens"] == 96 and made["matrices"] > 0
    plain, weighted = tmp_path / "plain.gguf", tmp_path / "weighted.gguf"
    millrace.json("quantize", tiny, plain, "--type", "Q4_0")
    millrace.json("quantize", tiny, weighted, "--type", "Q4_0", "--imatrix", tmp_path / "imatrix.gguf")
    assert plain.read_bytes()[-4096:] != weighted.read_bytes()[-4096:]
    (tmp_path / "binary").write_bytes(b"\x01\x00\x00\x00 legacy")
    assert "binary" in millrace.fails("quantize", tiny, tmp_path / "x.gguf", "--type", "Q4_0", "--imatrix", tmp_path / "binary", code=1)
    millrace.fails("imatrix", "-m", tiny, "-f", text, "-o", tiny, code=2)  # would replace the model
